"""`forebay top` on a terminal of its own."""

import termios

from harness.servers import eventually


def test_once_prints_a_frame_without_a_terminal(cli, objects):
    shown = cli.text("top", "--once")
    for part in ("forebay top http://", "Requests", "Hit ratio", "Backlog", "Disks", "Under stores", "Jobs", "Notices"):
        assert part in shown, shown
    assert "\x1b" not in shown
    assert cli.json("top", "--once")["status"]["capacityBytes"] > 0


def test_without_a_terminal_it_is_refused(cli):
    assert "--once" in cli.refused("top")
    assert "--once" in cli.refused("top", "--output", "json")
    assert "--interval" in cli.refused("top", "--interval", "1ms")


def test_q_ends_and_the_terminal_is_as_before(screen):
    top = screen("top", "--interval", "250ms")
    top.shows("Backlog")
    assert termios.tcgetattr(top.slave) != top.before
    top.type(b"?")
    top.shows("Help")
    top.type(b"q")
    assert top.end() == 0
    assert termios.tcgetattr(top.slave) == top.before
    # Back from the alternate screen, with the cursor shown.
    assert b"\x1b[?1049l" in top.written and b"\x1b[?25h" in top.written


def test_a_signal_leaves_the_terminal_as_before(screen):
    top = screen("top")
    top.shows("Backlog")
    top.process.terminate()
    assert top.end() == 0
    assert termios.tcgetattr(top.slave) == top.before


def test_it_follows_the_size_of_the_terminal(screen):
    top = screen("top")
    top.shows("Hit")
    top.resize(40, 10)
    top.shows("Requests")
    assert "Hit" not in top.frame()
    top.type(b"\t")
    top.shows("Hit")
    top.type(b"q")
    assert top.end() == 0


def test_colours_are_a_matter_of_taste(screen):
    coloured = screen("top")
    assert b"\x1b[38;5;" in coloured.shows("Notices")
    plain = screen("top", NO_COLOR="1")
    assert b"\x1b[38;5;" not in plain.shows("Notices")


def test_it_survives_a_restart_of_the_server(screen, cli):
    top = screen("top", "--interval", "250ms")
    top.shows("Backlog")
    cli.server.stop()
    top.shows("RECONNECTING")
    cli.server.start()
    eventually("a picture without trouble", lambda: "RECONNECTING" not in top.frame())
    top.type(b"q")
    assert top.end() == 0


def test_the_progress_of_a_job_is_a_bar_on_a_terminal(screen):
    bar = screen("scrub", "s3://shelf")
    assert bar.end() == 0
    assert " seen; " in bar.written.decode()
