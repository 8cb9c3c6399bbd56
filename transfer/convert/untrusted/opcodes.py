"""The opcodes of pickles, protocols 0 to 5, as Python's `pickletools` describes them."""

import codecs
import pickle
import struct
from collections.abc import Callable

from transfer.convert.untrusted.budget import (
    CALL_OPERATIONS,
    MAX_TEXT_BYTES,
    MAX_VALUE_BYTES,
    shorten,
)
from transfer.convert.untrusted.machine import MAX_NAME_BYTES, Opcode, PickleMachine
from transfer.convert.untrusted.objects import NeedsCodeError

BYTE, WORD, INT = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<i")
UNSIGNED, LONG = struct.Struct("<I"), struct.Struct("<Q")
DOUBLE = struct.Struct(">d")


def _protocol(machine: PickleMachine) -> None:
    protocol = machine.unpack(BYTE)
    if protocol > pickle.HIGHEST_PROTOCOL:
        raise pickle.UnpicklingError(
            f"the pickle has protocol {protocol}; known are 0 to {pickle.HIGHEST_PROTOCOL}"
        )


def _frame(machine: PickleMachine) -> None:
    # a frame only says how much to read ahead; the opcodes go on behind its length
    length, left = machine.unpack(LONG), len(machine.reader.data) - machine.reader.position
    if length > left:
        raise EOFError(f"a frame of {length} bytes reaches beyond the file, which has {left} left")


def _mark(machine: PickleMachine) -> None:
    machine.budget.operate(1)
    machine.marked.append(machine.stack)
    machine.stack = []


def _pop(machine: PickleMachine) -> None:
    # without a value since the last mark, this opcode removes the mark
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_marked()


def _int_line(machine: PickleMachine) -> None:
    line = machine.line()
    truths = {b"00": False, b"01": True}
    machine.stack.append(truths[line] if line in truths else int(line, 0))


def _long_line(machine: PickleMachine) -> None:
    machine.stack.append(int(machine.line().removesuffix(b"L"), 0))


def _text_line(machine: PickleMachine) -> None:
    line = machine.text_line()
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
        raise pickle.UnpicklingError(f"a text stands without quotes: {shorten(line)}")
    # text of Python 2 are bytes; latin1 preserves each as one character
    machine.push_text(codecs.escape_decode(line[1:-1])[0], "latin1")


def _binary_text(form: struct.Struct, encoding: str) -> Opcode:
    def execute(machine: PickleMachine) -> None:
        content = machine.take_bytes(machine.unpack(form), MAX_TEXT_BYTES)
        machine.push_text(content, encoding, "surrogatepass" if encoding == "utf-8" else "strict")

    return execute


def _bytes(form: struct.Struct) -> Opcode:
    return lambda machine: machine.stack.append(machine.take_bytes(machine.unpack(form)))


def _bytearray(machine: PickleMachine) -> None:
    num_bytes = machine.unpack(LONG)
    if num_bytes > MAX_VALUE_BYTES:
        raise pickle.UnpicklingError(f"a value of {num_bytes:,} bytes is announced")
    machine.budget.allocate(num_bytes)
    machine.stack.append(bytearray(machine.reader.take(num_bytes)))


def _number(form: struct.Struct) -> Opcode:
    return lambda machine: machine.stack.append(machine.unpack(form))


def _value(value: object) -> Opcode:
    return lambda machine: machine.stack.append(value)


def _tuple(length: int) -> Opcode:
    def execute(machine: PickleMachine) -> None:
        values = tuple(machine.stack[-length:])
        if len(values) < length:
            raise pickle.UnpicklingError(f"a tuple has {len(values)} of {length} values")
        machine.stack[-length:] = [values]

    return execute


def _empty_list(machine: PickleMachine) -> None:
    machine.budget.operate(1)
    machine.stack.append([])


def _empty_dict(machine: PickleMachine) -> None:
    machine.budget.operate(1)
    machine.stack.append({})


def _empty_set(machine: PickleMachine) -> None:
    # takes four times the memory of a list
    machine.budget.operate(CALL_OPERATIONS)
    machine.stack.append(set())


def _frozenset(machine: PickleMachine) -> None:
    items = machine.pop_marked()
    for item in items:
        machine.budget.pay_for_key(item)
    machine.stack.append(frozenset(items))


def _dict(machine: PickleMachine) -> None:
    items = machine.pop_marked()
    machine.stack.append({})
    machine.set_items(items)


def _set_item(machine: PickleMachine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


def _global(machine: PickleMachine) -> None:
    module, name = (str(machine.line(MAX_NAME_BYTES), "utf-8") for _ in range(2))
    machine.push_global(module, name)


def _stack_global(machine: PickleMachine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.push_global(module, name)


def _extension(machine: PickleMachine) -> None:
    raise NeedsCodeError.for_global("a function by its number in Python's extension registry")


def _reduce(machine: PickleMachine) -> None:
    args, function = machine.stack.pop(), machine.stack.pop()
    machine.call(function, args)


def _new_with_keywords(machine: PickleMachine) -> None:
    keywords, args, function = (machine.stack.pop() for _ in range(3))
    machine.call(function, args, keywords)


def _inst(machine: PickleMachine) -> None:
    _global(machine)
    function = machine.stack.pop()
    machine.call(function, tuple(machine.pop_marked()))


def _obj(machine: PickleMachine) -> None:
    function, *args = machine.pop_marked()
    machine.call(function, tuple(args))


def _persistent_line(machine: PickleMachine) -> None:
    line = machine.line(MAX_NAME_BYTES)
    machine.stack.append(machine.load_persistent(line.decode("ascii")))


def _persistent(machine: PickleMachine) -> None:
    machine.budget.operate(CALL_OPERATIONS)
    machine.stack.append(machine.load_persistent(machine.stack.pop()))


def _memo_line(act: Callable[[PickleMachine, int], None]) -> Opcode:
    return lambda machine: act(machine, int(machine.line()))


def _memo(act: Callable[[PickleMachine, int], None], form: struct.Struct) -> Opcode:
    return lambda machine: act(machine, machine.unpack(form))


def _remember(form: struct.Struct) -> Opcode:
    def execute(machine: PickleMachine) -> None:  # most opcodes of most files: no further calls
        reader = machine.reader
        machine.memo[form.unpack_from(reader.data, reader.position)[0]] = machine.stack[-1]
        reader.position += form.size

    return execute


_BY_NAME: dict[bytes, Opcode] = {
    pickle.PROTO: _protocol,
    pickle.FRAME: _frame,
    pickle.MARK: _mark,
    pickle.POP: _pop,
    pickle.POP_MARK: lambda machine: machine.pop_marked(),
    pickle.DUP: lambda machine: machine.stack.append(machine.stack[-1]),
    pickle.NONE: _value(None),
    pickle.NEWTRUE: _value(True),
    pickle.NEWFALSE: _value(False),
    pickle.INT: _int_line,
    pickle.BININT: _number(INT),
    pickle.BININT1: _number(BYTE),
    pickle.BININT2: _number(WORD),
    pickle.LONG: _long_line,
    pickle.LONG1: lambda machine: machine.push_long(machine.unpack(BYTE)),
    pickle.LONG4: lambda machine: machine.push_long(machine.unpack(INT)),
    pickle.FLOAT: lambda machine: machine.stack.append(float(machine.line())),
    pickle.BINFLOAT: _number(DOUBLE),
    pickle.STRING: _text_line,
    pickle.BINSTRING: _binary_text(INT, "latin1"),
    pickle.SHORT_BINSTRING: _binary_text(BYTE, "latin1"),
    pickle.UNICODE: lambda machine: machine.push_text(machine.text_line(), "raw-unicode-escape"),
    pickle.BINUNICODE: _binary_text(UNSIGNED, "utf-8"),
    pickle.SHORT_BINUNICODE: _binary_text(BYTE, "utf-8"),
    pickle.BINUNICODE8: _binary_text(LONG, "utf-8"),
    pickle.BINBYTES: _bytes(UNSIGNED),
    pickle.SHORT_BINBYTES: _bytes(BYTE),
    pickle.BINBYTES8: _bytes(LONG),
    pickle.BYTEARRAY8: _bytearray,
    pickle.EMPTY_TUPLE: _value(()),
    pickle.TUPLE: lambda machine: machine.push(tuple(machine.pop_marked())),
    pickle.TUPLE1: _tuple(1),
    pickle.TUPLE2: _tuple(2),
    pickle.TUPLE3: _tuple(3),
    pickle.EMPTY_LIST: _empty_list,
    pickle.LIST: lambda machine: machine.push(machine.pop_marked()),
    pickle.APPEND: lambda machine: machine.extend([machine.stack.pop()]),
    pickle.APPENDS: lambda machine: machine.extend(machine.pop_marked()),
    pickle.EMPTY_DICT: _empty_dict,
    pickle.DICT: _dict,
    pickle.SETITEM: _set_item,
    pickle.SETITEMS: lambda machine: machine.set_items(machine.pop_marked()),
    pickle.EMPTY_SET: _empty_set,
    pickle.ADDITEMS: lambda machine: machine.add_items(machine.pop_marked()),
    pickle.FROZENSET: _frozenset,
    pickle.GLOBAL: _global,
    pickle.STACK_GLOBAL: _stack_global,
    pickle.EXT1: _extension,
    pickle.EXT2: _extension,
    pickle.EXT4: _extension,
    pickle.REDUCE: _reduce,
    pickle.NEWOBJ: _reduce,
    pickle.NEWOBJ_EX: _new_with_keywords,
    pickle.INST: _inst,
    pickle.OBJ: _obj,
    pickle.BUILD: lambda machine: machine.build(),
    pickle.PERSID: _persistent_line,
    pickle.BINPERSID: _persistent,
    pickle.PUT: _memo_line(PickleMachine.remember),
    pickle.BINPUT: _remember(BYTE),
    pickle.LONG_BINPUT: _remember(UNSIGNED),
    pickle.MEMOIZE: lambda machine: machine.remember(len(machine.memo)),
    pickle.GET: _memo_line(PickleMachine.recall),
    pickle.BINGET: _memo(PickleMachine.recall, BYTE),
    pickle.LONG_BINGET: _memo(PickleMachine.recall, UNSIGNED),
}

OPCODES: list[Opcode | None] = [_BY_NAME.get(bytes([code])) for code in range(256)]
"""Function of each opcode by its byte; NEXT_BUFFER and READONLY_BUFFER need data from elsewhere."""
