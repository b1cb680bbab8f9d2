# Converts a Parquet, Arrow or Feather file into a table (CSV), or into JSON lines where columns hold lists of numbers.
# Arguments: the file, and the name of the result without its ending. Prints one line: "done ENDING", "missing", or "wrong SENTENCE".
import json
import os
import sys

path, target = sys.argv[1:3]
try:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.ipc
    import pyarrow.parquet
except ImportError:
    print("missing")
    sys.exit()


def answer(text):
    print(" ".join(text.split()))
    sys.exit()


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def plain(field):
    """The type in which a column is written; ends the script where there is none."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_list(kind):
        inner = kind.value_type
        if is_list(inner):
            inner = inner.value_type
        if pa.types.is_integer(inner) or pa.types.is_floating(inner):
            return field.type
    if pa.types.is_boolean(kind):
        return pa.int8()
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return pa.float64()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        answer(f"wrong the column '{field.name}' is of the type {kind}, which is no column of a table: "
               "write its parts as columns of their own")
    return kind


def batches():
    with open(path, "rb") as file:
        begin = file.read(6)
    if begin[:4] == b"PAR1":
        file = pa.parquet.ParquetFile(path)
        return file.schema_arrow, file.iter_batches(65536)
    if begin == b"ARROW1":
        file = pa.ipc.open_file(pa.memory_map(path))
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    if begin[:4] == b"FEA1":
        table = pa.feather.read_table(path)
        return table.schema, table.to_batches()
    stream = pa.ipc.open_stream(path)
    return stream.schema, stream


try:
    schema, parts = batches()
    result = pa.schema([pa.field(field.name, plain(field)) for field in schema])
    ending = "jsonl" if any(is_list(field.type) for field in result) else "csv"
    temporary = f"{target}.{os.getpid()}.part"
    try:
        if ending == "csv":
            with pa.csv.CSVWriter(temporary, result) as writer:
                for part in parts:
                    columns = [part.column(i).cast(kind.type) for i, kind in enumerate(result)]
                    writer.write_batch(pa.record_batch(columns, schema=result))
        else:
            with open(temporary, "w", encoding="utf-8") as writer:
                for part in parts:
                    columns = [part.column(i).cast(kind.type) for i, kind in enumerate(result)]
                    for row in pa.record_batch(columns, schema=result).to_pylist():
                        writer.write(json.dumps(row, default=str) + "\n")
        os.replace(temporary, f"{target}.{ending}")
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    answer(f"done {ending}")
except (OSError, ValueError, pa.ArrowException) as error:
    answer(f"wrong {error}")
