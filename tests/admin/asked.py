"""What schemathesis can't know of the API: what strings of our own formats look like. Loaded by it through SCHEMATHESIS_HOOKS."""

import schemathesis
from hypothesis import strategies as st

# There is one of these; the others are not there.
BUCKETS = st.sampled_from(["there", "absent", "a-b.c-9", "x" * 63])
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=50)
PLACES = st.one_of(BUCKETS.map("/{}".format), st.builds("/{}/{}".format, BUCKETS, KEYS))
NUMBERS = st.integers(0, 1000)

schemathesis.openapi.format("object-path", st.builds("/{}/{}".format, BUCKETS, KEYS))
schemathesis.openapi.format("bucket-path", PLACES)
schemathesis.openapi.format("place", st.one_of(st.just("/"), PLACES))
schemathesis.openapi.format("byte-size", st.builds("{} {}".format, NUMBERS, st.sampled_from(["B", "KiB", "MiB", "GB"])))
schemathesis.openapi.format("period", st.builds("{} {}".format, NUMBERS, st.sampled_from(["ms", "s", "min", "h"])))
