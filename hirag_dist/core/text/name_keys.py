"""Keys of many names at a time, in Arrow arrays: apart from `normalize`, which processes without Arrow import."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.text.normalize import name_key

_PLAIN = r"\A[A-Za-z0-9](?:[A-Za-z0-9 '&.,:;/+-]*[A-Za-z0-9])?\z"  # nothing that `name_key` changes but capitals


def name_keys(names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return `name_key` of each name. Plain ASCII names, most names of most texts, are lower-cased together.

    >>> name_keys(pa.array(["The GHOST", " “Scrooge” "])).to_pylist()
    ['the ghost', 'scrooge']
    """
    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays([pa.array([], pa.string()), *names.chunks])
    keys = pc.ascii_lower(names)
    is_plain = pc.and_not(pc.match_substring_regex(names, _PLAIN), pc.match_substring(names, "  "))
    others = pa.array(np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)))
    if not len(others):
        return keys
    found = pa.array([name_key(name) for name in names.take(others).to_pylist()], pa.string())
    return pc.replace_with_mask(keys, pc.invert(is_plain), found)
