"""Hooks, called by keyword with QitOS's own argument names."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.engine import EngineHook


class Listener(EngineHook):
    def __init__(self):
        self.heard = []

    def on_run_start(self, task, state, engine):
        self.heard.append(f"start {task} {state.task}")

    def on_before_act(self, ctx, engine):
        self.heard.append(f"act {ctx.decision.actions[0].name} at {ctx.step_id}")

    def on_after_act(self, ctx, engine):
        self.heard.append(f"acted {ctx.action_results}")

    def on_after_decide(self, ctx, engine):
        self.heard.append(f"decided {ctx.decision.mode}")

    def on_step_end(self, record, state, engine):
        self.heard.append(f"step {record.step_id}")

    def on_run_end(self, result, engine):
        self.heard.append(f"end {result.state.stop_reason}")


class Keywords:
    """Takes what it needs and leaves the rest."""

    def __init__(self):
        self.events = 0

    def on_event(self, event, state, record, engine):
        self.events += 1


@tool(name="double")
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


class Doubler(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(double)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=3)

    def decide(self, state, observation):
        if state.current_step:
            return Decision.final("42")
        return Decision.act([Action("double", {"number": 21})])

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    listener, keywords = Listener(), Keywords()
    result = Doubler().run(
        "Double", return_state=True, hooks=[listener, keywords], trace=False, render=False
    )
    return result, {"heard": listener.heard, "events": keywords.events > 5}
