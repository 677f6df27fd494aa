"""How far an export is from the limit: ``json.dumps`` of the finished payload.

    python tests/benchmarks/payload.py [--steps N ...] [--rounds N]

Needs nothing installed. Prints medians of interleaved rounds as ratios to
``json.dumps(payload, ensure_ascii=False)`` in the same process; the folder's to
``json.loads`` of all its lines.
"""

import argparse
import json
import os
import platform
import tempfile

from _measure import classes_run, guide_loop, interleaved, peak_of, plain_run, record_fields
from _measure import events as events_of

import snowl_compat


def write_folder(folder, steps):
    with open(os.path.join(folder, "steps.jsonl"), "w", encoding="utf-8") as file:
        for step in range(steps):
            file.write(json.dumps(record_fields(step, False), ensure_ascii=False) + "\n")
    with open(os.path.join(folder, "events.jsonl"), "w", encoding="utf-8") as file:
        for step in range(steps):
            for phase, payload in events_of(step):
                row = {"run_id": "r", "step_id": step, "phase": phase, "ok": True}
                row.update(payload=payload, error=None, ts="2026-01-01T00:00:00+00:00")
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def loads_lines(folder):
    for name in ("steps.jsonl", "events.jsonl"):
        with open(os.path.join(folder, name), "rb") as file:
            for line in file:
                json.loads(line)


def in_memory(run, rounds):
    """Ratios to the limit of export_json, build_payload + dumps, and the guide's.

    The guide's is None where it cannot write the run at all.
    """
    payload = snowl_compat.build_payload(run)
    try:
        json.dumps(guide_loop(run))
        guided = guide_loop
    except TypeError:
        guided = None
    limit, export, both, guide = interleaved(
        [
            lambda: json.dumps(payload, ensure_ascii=False),
            lambda: snowl_compat.export_json(run),
            lambda: snowl_compat.dumps(snowl_compat.build_payload(run)),
            lambda: guided and json.dumps(guided(run), ensure_ascii=False),
        ],
        rounds,
    )
    return limit, export / limit, both / limit, guided and guide / limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, medians of {args.rounds} interleaved rounds")
    print("1.00 = json.dumps of the finished payload; folder: json.loads of all its lines\n")
    head = "steps    run           limit us/step  export_json  build+dumps  guide's loop"
    print(head, "\n", "-" * len(head), sep="")
    for steps in args.steps:
        for name, make, awkward in (
            ("objects", plain_run, False),
            ("qitos_min", classes_run, False),
            ("1 % awkward", plain_run, True),
        ):
            limit, export, both, guide = in_memory(make(steps, awkward), args.rounds)
            print(
                f"{steps:<8} {name:<13} {limit / steps * 1e6:>13.1f}"
                f"  {export:>11.2f}  {both:>11.2f}"
                f"  {'raises' if guide is None else f'{guide:.2f}':>12}",
                flush=True,
            )
    print("\nsteps    folder export  peak MiB: export  folder  json.dumps  text MiB")
    for steps in args.steps:
        with tempfile.TemporaryDirectory() as folder:
            write_folder(folder, steps)
            alone, export = interleaved(
                [lambda: loads_lines(folder), lambda: snowl_compat.export_json(folder)],
                args.rounds,
            )
            run = plain_run(steps)
            payload = snowl_compat.build_payload(run)
            text = len(snowl_compat.dumps(payload).encode()) / 2**20
            peaks = [
                peak_of(lambda: snowl_compat.export_json(run)),
                peak_of(lambda: snowl_compat.export_json(folder)),
                peak_of(lambda: json.dumps(payload, ensure_ascii=False)),
            ]
        print(
            f"{steps:<8} {export / alone:>13.2f}  {peaks[0]:>16.1f}  {peaks[1]:>6.1f}"
            f"  {peaks[2]:>10.1f}  {text:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
