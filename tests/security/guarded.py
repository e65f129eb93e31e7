"""A worker that has something to guard."""

from harness.servers import Forebay

# Who may do what. Secrets are words that stand nowhere else, so that they are found wherever they leak to.
STRANGER = ("STRANGERKEY", "stranger-secret-93aa1f")
READER = ("READERKEY", "reader-secret-4c6ab0")
WRITER = ("WRITERKEY", "writer-secret-e01d77")
USERS = f"""
[[user]]
name = "stranger"
access_key = "{STRANGER[0]}"
secret_key = "{STRANGER[1]}"
grants = [{{ path = "/elsewhere/", allow = ["read", "write", "list"] }}]

[[user]]
name = "reader"
access_key = "{READER[0]}"
secret_key = "{READER[1]}"
grants = [{{ path = "/bucket/", allow = ["read"] }}]

[[user]]
name = "writer"
access_key = "{WRITER[0]}"
secret_key = "{WRITER[1]}"
grants = [{{ path = "/bucket/own/", allow = ["read", "write"] }}]
"""


class Guarded(Forebay):
    """A Forebay with users and both logs."""

    def __init__(self, directory, config="", **options):
        users = directory / "users.toml"
        directory.mkdir(parents=True, exist_ok=True)
        users.write_text(USERS)
        self.access_log = directory / "access.log"
        self.audit_log = directory / "audit.log"
        logs = f'[access_log]\nfile = "{self.access_log}"\n[audit_log]\nfile = "{self.audit_log}"\ninclude = "all"\n'
        super().__init__(directory, config=f'{logs}[server]\nusers_file = "{users}"\n{config}', **options)

    def requests_behind(self):
        """How many requests the under store has got."""
        return sum(count for name, count in self.metrics().items() if name.startswith("forebay_under_store_requests_total"))
