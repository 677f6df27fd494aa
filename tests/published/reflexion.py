"""Reflexion: a critic asks for another try, the agent keeps what it learned."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry, tool
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.critic import Critic
from qitos_min.kit import ReActTextParser
from qitos_min.kit.planning import append_log


@dataclass
class ReflexionState(StateSchema):
    reflections: list[str] = field(default_factory=list)
    tries: int = 0


class ExactCritic(Critic):
    """Asks for another try until a result is 12."""

    def evaluate(self, state, decision, results):
        if decision.mode == "act" and results and results[0] != 12:
            state.reflections.append(f"{results[0]} is not 12")
            return {"action": "continue", "reason": "wrong", "score": 0.2}
        return {"action": "continue", "reason": "", "score": 1.0}


class ReflexionAgent(AgentModule[ReflexionState, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(self.multiply)
        super().__init__(tool_registry=registry, llm=llm, model_parser=ReActTextParser())

    @tool(name="multiply")
    def multiply(self, a: int, b: int) -> int:
        """Multiply two integers."""
        return a * b

    def init_state(self, task: str, **kwargs: Any) -> ReflexionState:
        return ReflexionState(task=task, max_steps=int(kwargs.get("max_steps", 5)))

    def prepare(self, state: ReflexionState) -> str:
        return "\n".join([state.task, *(f"Lesson: {text}" for text in state.reflections)])

    def reduce(self, state, observation, decision):
        if decision.mode == "act":
            state.tries += 1
            state.metadata["last"] = observation["action_results"][-1]
        return state


def main(scripted, folder):
    llm = scripted(
        [
            "Thought: guess\nAction: multiply(a=2, b=5)",
            "Thought: the lesson says more\nAction: multiply(a=3, b=4)",
            "Final Answer: 3 and 4",
        ]
    )
    agent = ReflexionAgent(llm)
    engine = Engine(agent=agent, critics=[ExactCritic()], budget=RuntimeBudget(max_steps=5))
    result = engine.run("Two numbers whose product is 12", max_steps=5)
    return result, {
        "tries": result.state.tries,
        "reflections": result.state.reflections,
        "lesson_sent": "Lesson: 10 is not 12" in llm.asked[1][-1]["content"],
        "last": result.state.metadata["last"],
    }
