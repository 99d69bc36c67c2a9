"""The metrics that servers of models write, as their documentation and sources have them, for tests."""

from __future__ import annotations

MODEL = 'model_name="example/Model-8B"'


def vllm(running: float = 0, waiting: float = 0, tokens: float = 5000, *, engines: int = 1) -> str:
    """vLLM: each series once for each engine, a histogram whose name ends as a counter's, creation times, labels of a
    gauge's causes."""
    lines = [
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
    ]
    for engine in range(engines):
        labels = f'engine="{engine}",{MODEL}'
        lines += [
            f"vllm:num_requests_running{{{labels}}} {running}",
            f"vllm:num_requests_waiting{{{labels}}} {waiting}",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {waiting}',
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.904",
            f"vllm:generation_tokens_total{{{labels}}} {tokens}",
            f"vllm:generation_tokens_created{{{labels}}} 1.7898432023697093e+09",
            f"vllm:prompt_tokens_total{{{labels}}} 12000.0",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} 17.0',
            f'vllm:request_success_total{{{labels},finished_reason="abort"}} 0.0',
            f'vllm:iteration_tokens_total_bucket{{{labels},le="1.0"}} 3.0',
            f'vllm:iteration_tokens_total_bucket{{{labels},le="+Inf"}} 4096.0',
            f"vllm:iteration_tokens_total_sum{{{labels}}} {tokens}",
        ]
    return "\n".join([*lines, "process_open_fds 12.0", 'http_requests_total{handler="/v1/completions"} 9.0', ""])


def sglang(running: float = 0, waiting: float = 0, used: float = 123859) -> str:
    """SGLang: exponents, and tokens that count only when a request ends."""
    return "\n".join(
        [
            "# TYPE sglang:prompt_tokens_total counter",
            f"sglang:prompt_tokens_total{{{MODEL}}} 8.128902e+06",
            f"sglang:generation_tokens_total{{{MODEL}}} 7.557572e+06",
            f'sglang:e2e_request_latency_seconds_bucket{{le="0.3",{MODEL}}} 0.0',
            f"sglang:num_running_reqs{{{MODEL}}} {running}",
            f"sglang:num_used_tokens{{{MODEL}}} {used}",
            f"sglang:gen_throughput{{{MODEL}}} 86.50814177726902",
            f"sglang:num_queue_reqs{{{MODEL}}} {waiting}",
            "",
        ]
    )


def jetstream(backlog: float = 0, finished: float | None = None) -> str:
    """JetStream: one slot of an idle server is in use, and counters have no series before the first request."""
    lines = [
        "# HELP jetstream_prefill_backlog_size Size of prefill queue",
        "# TYPE jetstream_prefill_backlog_size gauge",
        f'jetstream_prefill_backlog_size{{id="server-0"}} {backlog}',
        'jetstream_slots_used_percentage{id="server-0",idx="0"} 0.04166666666666663',
    ]
    if finished is not None:
        lines.append(f'jetstream_request_success_count_total{{id="server-0"}} {finished}')
    return "\n".join([*lines, ""])
