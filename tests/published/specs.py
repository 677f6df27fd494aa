"""A task with a budget and resources, and the descriptions that go with a run."""

from typing import Any

from qitos_min import (
    Action,
    AgentModule,
    Decision,
    EnvSpec,
    ExperimentSpec,
    RunSpec,
    StateSchema,
    Task,
    TaskBudget,
    TaskResource,
)


class Idler(AgentModule[StateSchema, dict[str, Any], Action]):
    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        if set(kwargs) - {"max_steps"}:
            raise TypeError(f"unexpected: {sorted(kwargs)}")
        return StateSchema(task=task, max_steps=kwargs.get("max_steps", 9))

    def decide(self, state, observation):
        return Decision.wait(rationale="no hurry")

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    (folder / "input.txt").write_text("text", encoding="utf-8")
    task = Task(
        id="idle-1",
        objective="Idle",
        inputs={"pace": "slow"},
        resources=[TaskResource(kind="file", path=str(folder / "input.txt"))],
        env_spec=EnvSpec(type="host", config={"workspace_root": str(folder)}),
        budget=TaskBudget(max_steps=2),
        success_criteria=["nothing happened"],
    )
    result = Idler().run(
        task,
        return_state=True,
        run_spec=RunSpec(model_name="none", seed=3),
        experiment_spec=ExperimentSpec(name="idling"),
        trace=False,
        render=False,
    )
    again = Task.from_dict(task.to_dict())
    return result, {
        "again": [again.id, again.budget.max_steps, again.resources[0].kind, again.env_spec.type],
        "seed": RunSpec.from_value({"seed": 3}).to_dict()["seed"],
        "name": ExperimentSpec.from_value({"name": "idling"}).to_dict()["name"],
    }
