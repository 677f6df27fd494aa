"""A model over HTTP: made with QitOS's keywords, called for text, used by a run."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from qitos_min import Action, AgentModule, StateSchema, ToolRegistry, tool
from qitos_min.kit import ReActTextParser
from qitos_min.models import OpenAICompatibleModel

ANSWERS = ["hello", "Action: half(number=84)", "Final Answer: 42"]


def handler(answers):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": answers.pop(0)}
            reply = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "tiny",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            }
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


@tool(name="half")
def half(number: int) -> int:
    """Half of a number."""
    return number // 2


class Halver(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(half)
        super().__init__(tool_registry=registry, llm=llm, model_parser=ReActTextParser())

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def prepare(self, state):
        return state.task

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    server = HTTPServer(("127.0.0.1", 0), handler(list(ANSWERS)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        llm = OpenAICompatibleModel(
            model="tiny",
            api_key="none",
            base_url=f"http://127.0.0.1:{server.server_port}/v1",
            system_prompt="Be brief.",
            temperature=0.1,
            max_tokens=64,
            timeout=5,
        )
        said = llm([{"role": "user", "content": "hi"}])
        result = Halver(llm).run("Half of 84", return_state=True, trace=False, render=False)
    finally:
        server.shutdown()
        server.server_close()
    return result, {"said": said}
