"""Memories, a window history, and searches over the candidates of a branch."""

import pytest

from qitos_min import Decision, StateSchema
from qitos_min.core import HistoryMessage, MemoryRecord
from qitos_min.engine.search import Search
from qitos_min.kit import DynamicTreeSearch, MarkdownFileMemory, WindowHistory, WindowMemory


def filled(log, kind, count):
    for step in range(count):
        log.append(kind("user" if step % 2 else "tool", f"t{step}", step))
    return log


QUERIES = [
    (None, "t3 t4 t5"),
    ({"max_items": 2}, "t4 t5"),
    ({"max_items": 0}, ""),
    ({"roles": ["user"]}, "t3 t5"),
    ({"step_min": 5}, "t5"),
    ({"roles": ["system"]}, ""),
]


@pytest.mark.parametrize(("query", "wanted"), QUERIES)
@pytest.mark.parametrize(
    ("log", "kind"), [(WindowMemory, MemoryRecord), (WindowHistory, HistoryMessage)]
)
def test_a_window_gives_what_a_query_asks_for(log, kind, query, wanted):
    kept = filled(log(window_size=3), kind, 6)
    assert " ".join(item.content for item in kept.retrieve(query)) == wanted


@pytest.mark.parametrize(
    ("log", "kind", "name"),
    [(WindowMemory, MemoryRecord, "records"), (WindowHistory, HistoryMessage, "messages")],
)
def test_a_window_keeps_so_many_until_it_is_reset(log, kind, name):
    kept = filled(log(window_size=2), kind, 5)
    assert [item.step_id for item in getattr(kept, name)] == [3, 4]
    kept.window_size = 1
    assert kept.evict() == 1
    assert kept.summarize() == "[4] tool: t4"
    getattr(kept, name).clear()
    assert len(getattr(kept, name)) == 1
    kept.reset(run_id="run-1")
    assert kept.retrieve() == [] and kept.summarize() == ""


def test_a_memory_file_outlives_a_run(tmp_path):
    path = tmp_path / "notes" / "memory.md"
    memory = filled(MarkdownFileMemory(str(path), max_in_memory=2), MemoryRecord, 3)
    assert [record.content for record in memory.retrieve()] == ["t1", "t2"]
    memory.reset()
    assert memory.retrieve() == []
    text = path.read_text(encoding="utf-8")
    assert [f"t{step}\n```\n" in text for step in range(3)] == [True] * 3


@pytest.mark.parametrize(
    ("content", "fence"),
    [("plain", "```"), ("a ``` b", "````"), ("`````", "``````"), ("\ud800", "```")],
)
def test_a_record_stays_within_its_fence(tmp_path, content, fence):
    path = tmp_path / "memory.md"
    MarkdownFileMemory(path).append(MemoryRecord("note", content, 0, {"k": 1}))
    shown = content.encode("utf-8", "backslashreplace").decode("utf-8")
    assert path.read_text(encoding="utf-8") == (
        f"## Step 0: note\n- metadata: {{'k': 1}}\n\n{fence}text\n{shown}\n{fence}\n\n"
    )


def branch(*scores):
    return Decision.branch(
        [
            Decision.wait(rationale=f"{scores}{index}", meta={"id": f"{scores}{index}", **meta})
            for index, meta in enumerate({} if s is None else {"score": s} for s in scores)
        ]
    )


def chosen(search, decision, state):
    found = search.expand(state, {}, decision)
    found = search.prune(found, search.score(state, {}, found))
    return search.select(found, search.score(state, {}, found)).meta.get("score")


@pytest.mark.parametrize(
    ("search", "scores", "wanted"),
    [
        (Search(), (0.1, 0.9), 0.1),
        (DynamicTreeSearch(), (0.1, 0.9, 0.5), 0.9),
        (DynamicTreeSearch(top_k=1), (3, 3, 1), 3),
        (DynamicTreeSearch(), (None, 0.5), None),
        (DynamicTreeSearch(), (0.1, 0.9), 0.9),
        (DynamicTreeSearch(exploration_bonus=0), (0.5, "high", 3), 3),
    ],
)
def test_a_search_chooses_by_score(search, scores, wanted):
    assert chosen(search, branch(*scores), StateSchema()) == wanted


def test_a_tree_search_comes_back_to_what_it_left():
    search, state = DynamicTreeSearch(top_k=1, max_frontier=1), StateSchema()
    assert chosen(search, branch(0.9, 0.2, 0.8), state) == 0.9
    assert chosen(search, branch(0.1), state) == 0.8
    assert chosen(search, branch(0.3), state) == 0.3


def test_a_tree_search_prefers_what_was_chosen_less_often():
    search, state = DynamicTreeSearch(exploration_bonus=1.0), StateSchema()
    decision = branch(0.5, 0.4)
    first = decision.candidates[0]
    assert chosen(search, decision, state) == 0.5
    search.mark_selected(state, first)
    assert state.metadata == {"tree_visits": {first.meta["id"]: 1}}
    assert chosen(search, decision, state) == 0.4


def test_a_search_without_candidates_gives_the_state_back():
    state = StateSchema()
    assert Search().backtrack(state) is state
