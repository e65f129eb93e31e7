"""Fixtures: a Forebay whose admin API is asked, for each test a new one."""

import pytest
from harness.servers import Forebay


@pytest.fixture
def forebay(tmp_path):
    started = Forebay(tmp_path).start()
    yield started
    assert started.stop() == 0, started.log.read_text()[-4000:]
