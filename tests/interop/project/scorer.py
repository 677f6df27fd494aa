"""The answer, and the tool calls as Snowl's own trace scorer sees them."""

from snowl.scorer import chain, includes, tool_trace_policy

scorer = chain(
    [
        includes(metric_name="accuracy"),
        tool_trace_policy(required_tools=("add",), max_calls=1),
    ],
    namespace_metrics=False,
)
