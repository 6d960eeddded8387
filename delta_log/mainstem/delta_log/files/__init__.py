"""Data files: Arrow to Parquet and back, finding offsets in them, and rolling small ones up."""

from mainstem.delta_log.files.data_file import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    DataFileMissing,
    check_data_file,
    encode_data_file,
    offset_statistics,
    read_data_file,
)
from mainstem.delta_log.files.data_file_encoder import new_path
from mainstem.delta_log.files.data_file_reader import DataFileReader, open_data_file
from mainstem.delta_log.files.data_file_writer import write_data_files
from mainstem.delta_log.files.offset_lookup import (
    files_reaching,
    first_offset_at,
    offset_for_timestamp,
)
from mainstem.delta_log.files.roll_up import LEVELS, KeptFile, KeptFiles, RollUpMemory, choose
from mainstem.delta_log.files.roller import Roller, Swap
from mainstem.delta_log.files.slices import Slice, WrittenFile, encode_slices, put_file

__all__ = [
    "CREATE_TIME",
    "LEVELS",
    "LOG_APPEND_TIME",
    "DataFileMissing",
    "DataFileReader",
    "KeptFile",
    "KeptFiles",
    "RollUpMemory",
    "Roller",
    "Slice",
    "Swap",
    "WrittenFile",
    "check_data_file",
    "choose",
    "encode_data_file",
    "encode_slices",
    "files_reaching",
    "first_offset_at",
    "new_path",
    "offset_for_timestamp",
    "offset_statistics",
    "open_data_file",
    "put_file",
    "read_data_file",
    "write_data_files",
]
