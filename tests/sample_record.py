"""A small record for tests. Its times are inputs of the tests, not measurements."""


def document() -> dict:
    def row(benchmark, case, parameters, milliseconds, nbytes=None, flops=None):
        return {
            "benchmark": benchmark,
            "case": case,
            "parameters": parameters,
            "milliseconds": milliseconds,
            "low": round(milliseconds * 0.95, 6),
            "high": round(milliseconds * 1.05, 6),
            "repeats": 7,
            "bytes": nbytes,
            "flops": flops,
        }

    def chain(n, dtype, itemsize, milliseconds):
        parameters = {"n": n, "dtype": dtype}
        return row("chain", "eager", parameters, milliseconds, 10 * itemsize * n, 5 * n)

    return {
        "schema": 1,
        "gpu": "NVIDIA H200",
        "gpu_key": "h200",
        "driver": "580.1",
        "torch": "2.11.0+cu130",
        "triton": "3.6.0",
        "cuda": "13.0",
        "python": "3.12.3",
        "date": "2026-11-29",
        "git_revision": "0123456789ab",
        "rows": [
            chain(2**20, "float32", 4, 0.02),
            chain(2**28, "float32", 4, 2.53),
            chain(2**28, "bfloat16", 2, 1.27),
            row("launch", "add_8", {"launches": 500}, 0.004),
        ],
        "counters": [
            {
                "op": "gelu",
                "parameters": {"n": 250},
                "counted_read": 1000,
                "counted_written": 1000,
                "dram_read": 1001,
                "dram_written": 950,
                "kernels": 1,
            }
        ],
        "counters_date": "2026-11-30",
        "skipped": ["copy torch n=2^30: needs 8.0 GiB of GPU memory, 7.0 GiB are free"],
    }
