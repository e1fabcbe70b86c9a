import pytest

import ringdb


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def db(path):
    with ringdb.open(path, cache_bytes="8 MiB") as db:
        yield db
