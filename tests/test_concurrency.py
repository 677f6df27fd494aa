"""Many runs at once give what the same runs give one after another."""

from concurrent.futures import ThreadPoolExecutor

import snowl_compat
from qitos_min.__main__ import TASK, build_engine


def payload(_):
    engine = build_engine()
    return snowl_compat.export_json(engine.run(TASK), engine=engine)


def test_runs_in_threads_equal_runs_in_turn():
    alone = payload(None)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(payload, range(300))) == {alone}


def test_one_engine_can_run_in_many_threads():
    engine = build_engine()

    def run(_):
        return snowl_compat.export_json(engine.run(TASK), engine=engine)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(run, range(40)))) == 1
