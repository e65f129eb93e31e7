"""A browser window with the console in it."""

from playwright.sync_api import expect

from harness.servers import ROOT

AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"

# The system's: Playwright's own would be a download of its own kind.
CHROMIUM = "/usr/bin/chromium"
# Nothing but what the page asks for goes anywhere; a container has no sandbox of its own.
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
# Two cores are shared with the server and its load.
SECONDS = 20

CONFIG = """
[[policy]]
path = "/lake/in/"
writeMode = "WRITE_BACK"

[[policy]]
path = "/lake/scratch/"
writeMode = "TRANSIENT"
"""
# A key that would do harm in a page that took it for more than text, and that every layer quotes in its own way.
ODD_KEY = "odd/<img src=x onerror=alert(1)>&a=b?c#d%20+ü.txt"


class Console:
    """One browser window with cookies of its own."""

    def __init__(self, chromium, server, theme, size):
        self.server = server
        self.context = chromium.new_context(viewport=size, color_scheme=theme, accept_downloads=True)
        self.page = self.context.new_page()
        self.problems = []
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self.heard)
        # Tells of what the policy has blocked even where the browser's console does not.
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e => console.error('blocked', e.violatedDirective, e.blockedURI))"
        )

    def heard(self, message):
        # Answers that are no success are there too, and are for the page to tell.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def log_in(self):
        """Has a session, without the form."""
        keys = {"accessKey": self.server.access_key, "secretKey": self.server.secret_key}
        answer = self.context.request.post(f"{self.server.admin}/api/v1/session", data=keys)
        assert answer.status == 200, answer.text()
        return self

    def open(self, place=""):
        # A change behind the hash alone would not load anything.
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.admin}/console/{place}")
        return self.page

    def api(self, method, path, **options):
        """Asks the API with the session of this window."""
        token = self.context.request.get(f"{self.server.admin}/api/v1/session").json()["csrf"]
        headers = {"x-forebay-csrf": token} | options.pop("headers", {})
        return self.context.request.fetch(f"{self.server.admin}/api/v1/{path}", method=method, headers=headers, **options)

    def end_session(self):
        assert self.api("DELETE", "session").status == 204


def settled(page):
    """Waits until what was asked for is there."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
    return page


def complaints(page):
    """What axe finds against WCAG 2.2 AA and good practice, in a line each."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [f"{v['id']} ({v['impact']}): {node['target']} {node['failureSummary']}" for v in found for node in v["nodes"]]
