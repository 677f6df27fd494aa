"""Plan first with one call of the model, then act on one item of the plan after the other."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit.parser import ReActTextParser
from qitos_min.kit.planning import NumberedPlanBuilder, PlanCursor, append_log, set_final
from qitos_min.kit.prompts import PLAN_DRAFT_PROMPT, PLAN_EXEC_SYSTEM_PROMPT, render_prompt


@dataclass
class PlanState(StateSchema):
    plan: list[str] = field(default_factory=list)
    plan_cursor: int = 0
    notes: list[str] = field(default_factory=list)


@tool(name="measure", description="Length of a text.")
def measure(text: str) -> int:
    return len(text)


class PlanAgent(AgentModule[PlanState, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(measure)
        super().__init__(tool_registry=registry, llm=llm, model_parser=ReActTextParser())
        self.cursor = PlanCursor(plan_field="plan", cursor_field="plan_cursor")
        self.planner = NumberedPlanBuilder()

    def init_state(self, task: str, **kwargs: Any) -> PlanState:
        return PlanState(task=task, max_steps=kwargs.get("max_steps", 8))

    def decide(self, state, observation):
        if not state.plan:
            prompt = render_prompt(PLAN_DRAFT_PROMPT, {"task": state.task})
            self.cursor.init(state, self.planner.build(self.llm, prompt))
            return Decision.wait(rationale="planned")
        if self.cursor.done(state):
            return Decision.final("; ".join(state.notes))
        return None

    def build_system_prompt(self, state: PlanState) -> str:
        schema = self.tool_registry.get_tool_descriptions()
        return render_prompt(PLAN_EXEC_SYSTEM_PROMPT, {"tool_schema": schema})

    def prepare(self, state: PlanState) -> str:
        return f"Task: {state.task}\nNow: {self.cursor.current(state)}"

    def reduce(self, state, observation, decision):
        if decision.mode == "act":
            append_log(
                state, "notes", f"{self.cursor.current(state)} = {observation['action_results'][0]}"
            )
            self.cursor.advance(state)
        if decision.mode == "final":
            set_final(state, decision.final_answer)
        return state


def main(scripted, folder):
    llm = scripted(
        [
            "1. measure one\n2. measure three",
            'Thought: first\nAction: measure(text="one")',
            'Thought: second\nAction: measure(text="three")',
        ]
    )
    result = PlanAgent(llm).run(
        "Measure one and three", return_state=True, max_steps=8, trace=False, render=False
    )
    return result, {"plan": result.state.plan, "cursor": result.state.plan_cursor}
