"""One run of real QitOS, read as a result and from the trace folder it wrote."""

from types import SimpleNamespace

import snowl_compat


def test_a_result_and_its_trace_folder_give_the_same_payload(need, project, tmp_path):
    need("qitos")
    module = project("qitos")
    agent = module.WayAgent()
    agent.llm = SimpleNamespace(model="model-1")
    result = agent.run(
        "right",
        return_state=True,
        max_steps=3,
        critics=[module.NotingCritic()],
        render=False,
        trace_logdir=str(tmp_path / "runs"),
    )
    (folder,) = (tmp_path / "runs").iterdir()
    told = snowl_compat.build_payload(result)
    read = snowl_compat.build_payload(folder)
    for key in ("critic_traces", "handoff_traces", "step_count", "tool_permissions"):
        assert told[key] == read[key], key
    assert told["engine_config"] == read["engine_config"]
    assert told["engine_config"]["model_id"] == "model-1"
    assert len(told["critic_traces"]) == told["step_count"] == 2
    assert [row["name"] for row in read["tool_permissions"]] == [
        "add",
        "boom",
        "strange",
    ]
