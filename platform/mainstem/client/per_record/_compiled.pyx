# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What runs once a record, compiled: see plain.py, which says what each does."""

import functools
import threading
from types import FunctionType, MethodType

import numpy as np
import pyarrow as pa

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from mainstem.records import bytes_column

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t count)
    void PyObject_GC_UnTrack(void* found)

cdef extern from *:
    """
    /* A tuple keeps its hash since Python 3.14. -1: it has none yet; allocated memory says 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define MAINSTEM_NO_HASH_YET(made) (((PyTupleObject*)(made))->ob_hash = -1)
    #else
    #define MAINSTEM_NO_HASH_YET(made) ((void)(made))
    #endif
    """
    void MAINSTEM_NO_HASH_YET(void* made)

VERSION = 4

cdef enum:
    APPENDED = 0
    LOOK = 1
    FULL = 2
    PIECE_ROWS_MAX = 8192
    #: What `plain.py`'s callers count for each record beside its bytes.
    RECORD_OVERHEAD_BYTES = 16

cdef int64_t BINARY_BYTES_MAX = 2**31 - 1


cdef int64_t now() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_REALTIME, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef class OpenRecords:
    cdef public object lock
    cdef public int64_t limit, used, flush_at_ns
    cdef public list values, keys
    cdef public dict timestamps_ms, explicit, waiters, headers
    cdef object _acquire, _release
    # A piece is cut at PIECE_ROWS_MAX, yet by whom is told so: others may be faster to append.
    cdef int64_t* _times_ns
    cdef Py_ssize_t _room

    def __cinit__(self, *arguments, **options):
        self._room = PIECE_ROWS_MAX + 64
        self._times_ns = <int64_t*>malloc(self._room * sizeof(int64_t))
        if self._times_ns == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._times_ns)

    def __init__(self):
        self.lock = threading.Lock()
        self._acquire = self.lock.acquire
        self._release = self.lock.release
        self.limit = 0
        self.clear()

    cpdef clear(self):
        self.used = 0
        self.flush_at_ns = 0
        self.values = []
        self.keys = []
        self.timestamps_ms = {}
        self.explicit = {}
        self.waiters = {}
        self.headers = {}

    cdef int _add(self, object value, object key, int64_t size, object waiter) except -1:
        """Adds a record; the caller holds the lock."""
        cdef int64_t used = self.used + size
        cdef int64_t now_ns
        cdef Py_ssize_t index
        if used > self.limit:
            return FULL
        index = len(self.values)
        if index >= self._room:
            self._grow()
        now_ns = now()
        self.values.append(value)
        self.keys.append(key)
        self._times_ns[index] = now_ns
        self.used = used
        if waiter is not None:
            self.waiters[index] = waiter
        if now_ns >= self.flush_at_ns or index >= PIECE_ROWS_MAX - 1:
            return LOOK
        return APPENDED

    cdef int _grow(self) except -1:
        cdef int64_t* larger = <int64_t*>malloc(2 * self._room * sizeof(int64_t))
        if larger == NULL:
            raise MemoryError
        memcpy(larger, self._times_ns, self._room * sizeof(int64_t))
        free(self._times_ns)
        self._times_ns = larger
        self._room *= 2
        return 0

    cdef int add(self, object value, object key, int64_t size, object waiter) except -1:
        """`append` of a record that has nothing else."""
        self._acquire()
        try:
            return self._add(value, key, size, waiter)
        finally:
            self._release()

    def append(
        self,
        value,
        key,
        int64_t size,
        partition=-1,
        waiter=None,
        timestamp_ms=None,
        headers=None,
    ):
        cdef int code
        cdef Py_ssize_t index
        self._acquire()
        try:
            index = len(self.values)
            code = self._add(value, key, size, waiter)
            if code != FULL:
                if partition >= 0:
                    self.explicit[index] = partition
                if timestamp_ms:
                    self.timestamps_ms[index] = timestamp_ms
                if headers:
                    self.headers[index] = headers
            return code
        finally:
            self._release()

    def appended_ns(self):
        return self._times_ns[len(self.values) - 1]

    def times_ms(self):
        cdef Py_ssize_t count = len(self.values)
        times = np.empty(count, dtype=np.int64)
        cdef int64_t* found = <int64_t*><uintptr_t>times.ctypes.data
        cdef Py_ssize_t index
        for index in range(count):
            found[index] = self._times_ns[index] // 1000000
        return times


def binary_column(list values, order=None):
    cdef Py_ssize_t count = len(values)
    cdef Py_ssize_t row, size, null_count = 0
    cdef int64_t total = 0
    cdef int64_t* rows = NULL
    cdef bint ordered = order is not None
    cdef object value
    if ordered:
        order = _numbers(order)
        rows = <int64_t*><uintptr_t>order.ctypes.data
        if len(order) != count or count and not 0 <= order.min() <= order.max() < count:
            raise IndexError("the order is of other values")
    for row in range(count):
        # By the order: one that names a value twice needs room for it twice.
        value = values[rows[row] if ordered else row]
        if type(value) is bytes:
            total += PyBytes_GET_SIZE(value)
        elif value is None:
            null_count += 1
        else:
            raise TypeError(f"{type(value).__name__} is not bytes")
    if total > BINARY_BYTES_MAX:
        return bytes_column(values)  # which says so
    data = pa.allocate_buffer(total)
    offsets = pa.allocate_buffer((count + 1) * sizeof(int32_t))
    cdef char* to = <char*><uintptr_t>data.address
    cdef int32_t* ends = <int32_t*><uintptr_t>offsets.address
    cdef uint8_t* bits = NULL
    cdef int32_t at = 0
    validity = None
    if null_count:
        validity = pa.allocate_buffer((count + 7) // 8)
        bits = <uint8_t*><uintptr_t>validity.address
        memset(bits, 0, (count + 7) // 8)
    ends[0] = 0
    for row in range(count):
        value = values[rows[row] if ordered else row]
        if value is not None:
            size = PyBytes_GET_SIZE(value)
            memcpy(to + at, PyBytes_AS_STRING(value), size)
            at += <int32_t>size
            if null_count:
                bits[row >> 3] |= <uint8_t>(1 << (row & 7))
        ends[row + 1] = at
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [validity, offsets, data], null_count
    )


cdef class _Binary:
    """A binary column, to read from; keeps its buffers."""

    cdef object _buffers
    cdef const uint8_t* _bits
    cdef const int32_t* _ends
    cdef const char* _data
    cdef Py_ssize_t _first, _data_bytes

    def __init__(self, column):
        cdef Py_ssize_t last = column.offset + len(column)
        self._buffers = validity, offsets, data = column.buffers()
        self._first = column.offset
        self._bits = NULL
        self._ends = NULL
        if len(column):
            if offsets is None or offsets.size < (last + 1) * <Py_ssize_t>sizeof(int32_t):
                raise ValueError("a column has fewer offsets than rows")
            self._ends = <const int32_t*><uintptr_t>offsets.address
            if validity is not None and column.null_count:
                if validity.size < (last + 7) // 8:
                    raise ValueError("a column has fewer bits than rows")
                self._bits = <const uint8_t*><uintptr_t>validity.address
        self._data = NULL
        self._data_bytes = 0
        if data is not None:
            self._data = <const char*><uintptr_t>data.address
            self._data_bytes = data.size

    cdef object at(self, Py_ssize_t row):
        row += self._first
        if self._bits != NULL and not (self._bits[row >> 3] >> (row & 7)) & 1:
            return None
        cdef Py_ssize_t start = self._ends[row]
        cdef Py_ssize_t end = self._ends[row + 1]
        if not 0 <= start <= end <= self._data_bytes:
            raise ValueError("a column's offsets lead out of its data")
        return PyBytes_FromStringAndSize(self._data + start, end - start)


cdef class RecordColumns:
    cdef type _kind
    cdef str _topic
    cdef object _partition, _offsets, _timestamps
    cdef const int64_t* _offset
    cdef const int64_t* _timestamp
    cdef _Binary _keys
    cdef _Binary _values
    cdef Py_ssize_t _count

    def __init__(
        self, type kind, str topic, object partition, offsets, timestamps, keys, values
    ):
        if not issubclass(kind, tuple):
            raise TypeError(f"{kind.__name__} is no tuple")
        if not len(offsets) == len(timestamps) == len(keys) == len(values):
            raise ValueError("the columns have different lengths")
        self._kind = kind
        self._topic = topic
        self._partition = partition
        self._offsets, self._timestamps = _numbers(offsets), _numbers(timestamps)
        self._offset = <const int64_t*><uintptr_t>self._offsets.ctypes.data
        self._timestamp = <const int64_t*><uintptr_t>self._timestamps.ctypes.data
        self._keys = _Binary(keys)
        self._values = _Binary(values)
        self._count = len(offsets)

    def take(
        self, Py_ssize_t start, Py_ssize_t count, list timestamp_types=None, list headers=None
    ):
        if start < 0 or count < 0:
            raise ValueError("rows are counted from 0")
        cdef Py_ssize_t stop = min(start + count, self._count)
        cdef Py_ssize_t row
        cdef object record
        cdef object create_time = 0
        cdef tuple none = ()
        cdef list records = []
        for given in (timestamp_types, headers):
            if given is not None and len(given) != max(stop - start, 0):
                raise ValueError("a list has not one of each record")
        for row in range(start, stop):
            record = _new_tuple(self._kind, 8)
            _set(record, 0, self._topic)
            _set(record, 1, self._partition)
            _set(record, 2, self._offset[row])
            _set(record, 3, self._timestamp[row])
            _set(record, 4, create_time if timestamp_types is None else timestamp_types[row - start])
            _set(record, 5, self._keys.at(row))
            _set(record, 6, self._values.at(row))
            _set(record, 7, none if headers is None else headers[row - start])
            # What it holds cannot lead back to it: looking for cycles in it would be in vain.
            PyObject_GC_UnTrack(<void*>record)
            records.append(record)
        return records


cdef class record_places:
    """An iterator; each is made when it is asked for."""

    cdef type _kind
    cdef object _topic, _table_version, _partitions, _offsets, _timestamps
    cdef const int64_t* _partition
    cdef const int64_t* _offset
    cdef const int64_t* _timestamp
    cdef Py_ssize_t _next, _count

    def __init__(
        self, type kind, str topic, partitions, offsets, timestamps, object table_version
    ):
        if not issubclass(kind, tuple):
            raise TypeError(f"{kind.__name__} is no tuple")
        if not len(partitions) == len(offsets) == len(timestamps):
            raise ValueError("the columns have different lengths")
        self._kind = kind
        self._topic = topic
        self._table_version = table_version
        self._partitions = _numbers(partitions)
        self._offsets = _numbers(offsets)
        self._timestamps = _numbers(timestamps)
        self._partition = <const int64_t*><uintptr_t>self._partitions.ctypes.data
        self._offset = <const int64_t*><uintptr_t>self._offsets.ctypes.data
        self._timestamp = <const int64_t*><uintptr_t>self._timestamps.ctypes.data
        self._next = 0
        self._count = len(partitions)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t row = self._next
        if row >= self._count:
            raise StopIteration
        self._next = row + 1
        place = _new_tuple(self._kind, 5)
        _set(place, 0, self._topic)
        _set(place, 1, self._partition[row])
        _set(place, 2, self._offset[row])
        _set(place, 3, self._timestamp[row])
        _set(place, 4, self._table_version)
        PyObject_GC_UnTrack(<void*>place)
        return place


cdef object _numbers(object array):
    return np.ascontiguousarray(array, dtype=np.int64)


cdef inline object _new_tuple(type kind, Py_ssize_t count):
    """With fields that are still to be set."""
    made = PyType_GenericAlloc(kind, count)
    MAINSTEM_NO_HASH_YET(<void*>made)
    return made


cdef inline void _set(object record, Py_ssize_t index, object field):
    Py_INCREF(field)
    PyTuple_SET_ITEM(record, index, field)


def faster_produce(slow):
    """The common record: a topic that is open, bytes, and nothing else but a callback."""

    @functools.wraps(slow)
    def produce(
        self,
        topic,
        value=None,
        key=None,
        partition=-1,
        on_delivery=None,
        timestamp=None,
        headers=None,
        *,
        callback=None,
    ):
        cdef PyObject* found
        cdef int64_t size
        cdef int code
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and timestamp is None
            and headers is None
            and callback is None
            and (partition is MINUS_ONE or partition == -1)
            and (on_delivery is None or _is_plain(on_delivery))
            and not self._places
        ):
            found = PyDict_GetItem(self._topics, topic)
            if found != NULL:
                size = PyBytes_GET_SIZE(value) + RECORD_OVERHEAD_BYTES
                if key is not None:
                    size += PyBytes_GET_SIZE(key)
                buffer = <object>found
                code = (<OpenRecords?>buffer).add(value, key, size, on_delivery)
                if code == APPENDED:
                    return
                if code == LOOK:
                    self._engine.look(buffer)
                    return
        slow(self, topic, value, key, partition, on_delivery, timestamp, headers, callback=callback)

    return produce


cdef object MINUS_ONE = -1

cdef int CO_COROUTINE = 0x80


cdef bint _is_plain(object callback):
    """A function, or a method, that is no coroutine function; of others `produce` finds out."""
    if type(callback) is MethodType:
        callback = callback.__func__
    return type(callback) is FunctionType and not callback.__code__.co_flags & CO_COROUTINE
