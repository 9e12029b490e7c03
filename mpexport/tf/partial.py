"""Restore only the variables that signatures read.

A SavedModel may hold far more than its signatures need: optimizer slots, or each weight twice
(Keras 3 lists its variables a second time). Restoring those would double memory and time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# Below this it is not worth leaving the well-trodden way.
_WORTH_BYTES = 2**26


def needed_paths(meta_graph: Any) -> list[str] | None:
    """Paths of the objects to restore, when leaving out the rest saves memory.

    Args:
        meta_graph: A MetaGraphDef with an object graph.

    Returns:
        Paths such as ``root.signatures``; None when everything is needed, or nearly.
    """
    nodes = meta_graph.object_graph_def.nodes
    bound = {
        i for f in meta_graph.object_graph_def.concrete_functions.values() for i in f.bound_inputs
    }
    unread = {i for i, n in enumerate(nodes) if n.HasField("variable") and i not in bound}
    if sum(_size_bytes(nodes[i].variable) for i in unread) < _WORTH_BYTES:
        return None
    paths: list[str] = []
    seen: set[int] = set()
    todo = [(0, "root")]
    while todo:
        node, path = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node != 0 and not unread & _reachable(nodes, node):
            paths.append(path)
        elif node not in unread:
            todo.extend((c.node_id, f"{path}.{c.local_name}") for c in nodes[node].children)
    return sorted(paths)


def _size_bytes(variable: Any) -> int:
    shape = tf.TensorShape(variable.shape)
    elements = shape.num_elements() or 0
    return int(elements) * int(tf.as_dtype(variable.dtype).size)


def _reachable(nodes: Any, start: int) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(c.node_id for c in nodes[node].children)
    return found


def load_paths(directory: str, tags: Iterable[str], paths: list[str]) -> Any:
    """Restores some objects of a SavedModel.

    Returns:
        A trackable with the signatures, and everything else that was restored under one list.
    """
    loaded = tf.__internal__.saved_model.load_partial(directory, paths, tags=list(tags))
    # tf.Module has properties of names that Keras exports its lists under.
    model = tf.__internal__.tracking.AutoTrackable()
    model.signatures = loaded["root.signatures"]
    model.restored = [v for k, v in sorted(loaded.items()) if k.count(".") > 1]
    for path, child in loaded.items():
        if path.count(".") == 1 and path != "root.signatures":
            setattr(model, path.partition(".")[2], child)
    return model
