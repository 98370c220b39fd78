"""Measure every row and print the table: ``python -m benchmarks [--quick] [--only call] [--json FILE]``."""
import sys
from benchmarks import bench_call
rounds = int(sys.argv[1]) if len(sys.argv)>1 else 12
for r in bench_call.rows(rounds=rounds):
    print(r.what, r.against, r.ratio, r.limit, r.verdict, r.note)
