"""The protobuf messages of a MindSpore strategy file (its node_strategy.proto), built at run time.

They live in a descriptor pool of their own under our package name: MindSpore registers the same
messages in protobuf's default pool, and both must be usable in one process.

Source: mindspore 2.7.0, mindspore/ccsrc/utils/node_strategy.proto (proto2). The wire format depends
on field numbers and types only, so names of packages are free.
"""

import os
from typing import Any

# MindSpore's generated code works with protobuf's Python implementation only; it asks for it this
# way too, but too late where protobuf is loaded first: then `import mindspore` fails.
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "grpoflow.strategy"

_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3  # FieldDescriptorProto.Label
_INT64, _INT32, _STRING, _MESSAGE, _BYTES, _UINT32 = 3, 5, 9, 11, 12, 13  # FieldDescriptorProto.Type

# message -> fields (name, number, label, scalar type or name of a message)
_FIELDS: dict[str, list[tuple[str, int, int, int | str]]] = {
    "ParallelStrategy": [("dim", 1, _REPEATED, _UINT32)],
    "ParallelStrategys": [
        ("stage", 1, _REQUIRED, _UINT32),
        ("parallel_strategy", 2, _REPEATED, "ParallelStrategy"),
    ],
    "ParallelStrategyItem": [
        ("node_name", 1, _REQUIRED, _STRING),
        ("parallel_strategys", 2, _REQUIRED, "ParallelStrategys"),
    ],
    "DevMatrix": [("dim", 1, _REPEATED, _UINT32)],
    "TensorMap": [("dim", 1, _REPEATED, _INT32)],
    "ParamSplitShape": [("dim", 1, _REPEATED, _INT64)],
    "IndicesOffset": [("dim", 1, _REPEATED, _INT64)],
    "ParallelLayouts": [
        ("dev_matrix", 1, _REPEATED, "DevMatrix"),
        ("tensor_map", 2, _REPEATED, "TensorMap"),
        ("param_split_shape", 3, _REPEATED, "ParamSplitShape"),
        ("indices_offset", 4, _REPEATED, "IndicesOffset"),
        ("field", 5, _REQUIRED, _INT32),
        ("opt_weight_shard_step", 6, _REQUIRED, _INT32),
        ("opt_weight_shard_size", 7, _REQUIRED, _INT32),
    ],
    "ParallelLayoutItem": [
        ("param_name", 1, _REQUIRED, _STRING),
        ("parallel_layouts", 2, _REQUIRED, "ParallelLayouts"),
    ],
    "ParallelStrategyMap": [
        ("current_stage", 1, _REQUIRED, _UINT32),
        ("parallel_strategy_item", 2, _REPEATED, "ParallelStrategyItem"),
        ("parallel_layout_item", 3, _REPEATED, "ParallelLayoutItem"),
    ],
    # The same bytes as ParallelStrategyMap, with layout items that are encoded already.
    "EncodedStrategyMap": [
        ("current_stage", 1, _REQUIRED, _UINT32),
        ("parallel_strategy_item", 2, _REPEATED, "ParallelStrategyItem"),
        ("parallel_layout_item", 3, _REPEATED, _BYTES),
    ],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="grpoflow/node_strategy.proto", package=_PACKAGE, syntax="proto2"
    )
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for name, number, label, kind in fields:
            field = message.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_CLASSES = _classes()
ParallelStrategyMap: Any = _CLASSES["ParallelStrategyMap"]
"""One strategy file: ParallelStrategyMap().ParseFromString(bytes)."""
ParallelLayoutItem: Any = _CLASSES["ParallelLayoutItem"]
EncodedStrategyMap: Any = _CLASSES["EncodedStrategyMap"]
