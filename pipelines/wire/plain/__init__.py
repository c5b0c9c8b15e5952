"""ProtoData messages to columns and back in plain Python.

A message (`DataMap` in protos/data.proto) is a row of map entries. Each entry begins with its length and its key. The
message of `{"n": 5, "x": float32 [1.0, 2.0]}` has two:

    0a 09  0a 01 6e  12 04  20 05 68 05
    0a 17  0a 01 78  12 12  42 10  0a 01 02  10 01  1a 08  00 00 80 3f 00 00 00 40

`0a` begins an entry; `09` is its length; `0a 01 6e` is the key "n", one byte long; `12 04` begins the value. The value
of "n" is `iValue` 5 (`20 05`) and its type INT64 (`68 05`). That of "x" is an NDArray: its shape [2] (`0a 01 02`), its
element type FLOAT (`10 01`), and the array's own eight bytes.

Reading is fast where many messages can share the work:

- `records` joins the messages to one buffer and cuts all of them at once, by the lengths of their entries: numpy reads
  the first length of every message, then the second of every message, and so on. Entries are told apart by the bytes of
  their keys. Nothing is parsed for that, and nothing is copied: an entry is a place in the buffer (`windows`). A few
  messages cost less in a loop.
- `decode` puts the entries of each key into a column. Entries one after the other are a message again, so protobuf
  checks a whole column in one call. A column that is not wanted stays as it is, and is written out again untouched.
- `values` decodes the columns that are wanted. Arrays of one dtype and shape differ in their own bytes only, at the end
  of their entries (`arrays`): these are taken out of the buffer as one array of all rows, also if their first axes
  differ. Other values are read one at a time.

Writing (`encode`) goes the other way: each column gives its entries, and a message is the entries of its row. The
entries of an array column are one prefix for all rows and the memory of the array. Undecoded entries that
stood side by side in the messages that came in are copied as one.

Everything unusual is left to protobuf: a message that cannot be cut into entries in this simple way (a key twice,
fields that this version does not know, a value before its key) is parsed and serialised by protobuf, and read in that
form.
"""
