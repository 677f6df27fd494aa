"""Reading a page: fetch it, take the text out of it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry
from qitos_min.kit import HTMLExtractText, HTTPGet

PAGE = (
    "<html><head><title>Tea</title><script>no()</script></head><body><p>Green tea</p></body></html>"
)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = PAGE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Reader(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, url: str):
        registry = ToolRegistry()
        registry.register(HTTPGet(timeout=5, max_retries=0))
        registry.register(HTMLExtractText())
        super().__init__(tool_registry=registry)
        self.url = url

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        if state.current_step == 0:
            return Decision.act([Action("http_get", {"url": self.url})])
        if state.current_step == 1:
            page = state.metadata["got"]
            return Decision.act([Action("extract_web_text", {"html": page["content"]})])
        return Decision.final("read")

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.metadata["got"] = result
        return state


def main(scripted, folder):
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        agent = Reader(f"http://127.0.0.1:{server.server_port}/tea")
        result = agent.run("Read", return_state=True, trace=False, render=False)
    finally:
        server.shutdown()
        server.server_close()
    page, text = (record.action_results[0] for record in result.records[:2])
    return result, {
        "status": page["status_code"],
        "text": "Green tea" in str(text),
        "script": "no()" in str(text),
    }
