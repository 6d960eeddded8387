"""The bounds that several modules have to agree on, and those that a caller meets. Each says why it
has its value.

A bound that one module alone needs is defined there. Where two bounds depend on each other, that is
asserted where the second one is defined."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

#: Kafka's: a directory name of 255 bytes less its suffixes.
TOPIC_NAME_LENGTH_MAX: Final = 249

#: A partition costs a directory, a register and memory; Kafka advises a few thousand a broker.
PARTITION_COUNT_MAX: Final = 10_000

#: 9999-12-31T23:59:59.999Z, the last instant that Delta, Spark and Python's datetime all print.
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999

#: Rows of one Parquet row group: what a reader decodes at a time.
ROW_GROUP_ROWS_MAX: Final = 128 * 1024

#: Bytes of records in one row group, so that large records do not make large row groups: a reader
#: holds a whole column of one, and a gateway keeps `FETCH_CURSORS_MAX` readers open.
ROW_GROUP_BYTES_MAX: Final = 8 * MIB

#: Bytes of records that one table commit takes: bounds the memory and the time of a commit.
COMMIT_BYTES_MAX: Final = 64 * MIB

#: How long a data file that a job or a roll-up has written may wait for its commit: no run of a job
#: takes hours, and a leader whose store has failed for so long is not the leader any more. An
#: append's file may wait for ever: it is told by its offset.
UNCOMMITTED_FILE_MS_MAX: Final = 6 * 3_600_000

#: What a gRPC message may hold beside the records of a request.
MESSAGE_OVERHEAD_BYTES: Final = 64 * KIB

#: A client whose call is quiet for so long pings the gateway, and counts the connection as broken
#: when it has no answer after so long: enough for a large message on a slow line to pass before it.
KEEPALIVE_TIME_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000

#: Gateways that a client remembers beside its bootstrap.servers. More than a log has.
GATEWAYS_MAX: Final = 64

#: Records of one produce request. What they cost beside their bytes (offsets, positions in the
#: answer) is not in the size of the message, and records may be empty.
REQUEST_RECORDS_MAX: Final = 500_000

#: Records of one produce request that the gateway places: plain ones, and an Arrow batch without
#: ranges. Each plain one becomes a dozen objects, 10 us in all, before it is a row, and each of
#: both has a position in the answer, 100 bytes. The Arrow form with ranges is for many records.
REQUEST_PLACED_RECORDS_MAX: Final = 10_000

#: Headers of all plain records of one request: one a record.
REQUEST_HEADERS_MAX: Final = 10_000

#: Answers of one ProduceStream that its client has not read yet, with those that are still to come:
#: 50,000 of the usual ones, or a few to batches that the gateway placed. No more is read then.
STREAM_ANSWERS_BYTES_MAX: Final = MIB

#: The same over all streams; a stream has the second of these at least.
STREAMS_ANSWERS_BYTES_MAX: Final = 64 * MIB
STREAM_ANSWERS_BYTES_MIN: Final = 16 * KIB

#: Fields of one request, of all kinds and in all its messages: what parsing it takes, about 50 ns
#: each. Every limit on what repeats, with all fields of each, is below it.
REQUEST_FIELDS_MAX: Final = 200_000

#: Bytes of a request other than a produce request: ten thousand names of topics, with their ids.
REQUEST_BYTES_MAX: Final = 8 * MIB

#: Objects of staged records of one transaction and topic: some 80 GB.
TRANSACTION_OBJECTS_MAX: Final = 10_000

#: Prepared transactions that are decided together.
TRANSACTION_TOKENS_MAX: Final = 10_000

#: Users, rules, filters or quotas that are changed together, in one commit.
SECURITY_CHANGES_MAX: Final = 1_000

#: Rules of all access control lists together: every gateway has them in memory.
ACLS_MAX: Final = 10_000

#: States that a listing of transactions may be restricted to.
TRANSACTION_STATES_MAX: Final = 10

#: Facts of the errors in one request. Errors are for answers; requests have messages with them.
REQUEST_FACTS_MAX: Final = 100

#: Topics that one request for metadata names: all that one subscription may.
METADATA_TOPICS_MAX: Final = 10_000

#: Settings of a topic in one request: several times as many as there are.
TOPIC_SETTINGS_MAX: Final = 200

#: Ranges of an Arrow payload, one for each partition that it goes to: a table commit takes 0.1 ms
#: of the event loop for each partition that it adds to.
REQUEST_RANGES_MAX: Final = 1_000

#: Arrow record batches of one produce request: each costs about 0.1 ms, however few rows it has.
#: One is enough.
REQUEST_BATCHES_MAX: Final = 4_096

#: A header's key and value count for a record's size together with this many bytes each.
HEADER_OVERHEAD_BYTES: Final = 8

#: Table commits between two checkpoints of a topic: what opening it has to read beside one.
CHECKPOINT_INTERVAL_COMMITS: Final = 1_000

#: Topics that one gateway keeps open for appending: each has a state in memory and a task.
TOPICS_OPEN_MAX: Final = 10_000

#: What a record costs in the answer to a fetch beside its key, value and headers: its offset,
#: timestamp, lengths and null bits.
FETCHED_RECORD_OVERHEAD_BYTES: Final = 32

#: What a partition with records costs in the answer to a fetch beside them: names, and the schema
#: and framing of an Arrow stream.
FETCHED_PARTITION_OVERHEAD_BYTES: Final = 4 * KIB

#: What the records of a partition in the answer to a fetch may unpack to in a client: twice the
#: largest `fetch.max.bytes`, and gateways of today do not pack them at all.
ANSWER_UNPACKED_BYTES_MAX: Final = 512 * MIB

#: Partitions of one fetch: each costs about 200 bytes in the answer even without records.
FETCH_PARTITIONS_MAX: Final = 10_000

#: Columns that a fetch names: all that there are, with room for those to come.
FETCH_COLUMNS_MAX: Final = 32

#: The longest that a fetch waits for records: proxies close calls that are silent for minutes.
FETCH_WAIT_MS_MAX: Final = 60_000

#: Data files that a fetch reads for one partition: files may be small, and an answer must not take
#: seconds to fill.
FETCH_FILES_MAX: Final = 64

#: Readers of data files that stay open between fetches, so that the next one goes on where the last
#: one stopped. Each holds some megabytes: pages of each column, and what was not asked for yet.
FETCH_CURSORS_MAX: Final = 32

#: Batches of a producer and partition that may be under way at a time, and that a gateway can
#: answer with their offsets when they come again. Kafka's number.
IN_FLIGHT_BATCHES_MAX: Final = 5

#: The longest that an idempotent producer may be silent without being forgotten. Checkpoints keep
#: the registers of all that were heard of within it.
PRODUCER_EXPIRATION_MS_MAX: Final = 86_400_000

#: A topic forgets which transaction of a transactional id it had last when it got none for so long.
#: Kafka: transactional.id.expiration.ms.
TRANSACTIONAL_ID_EXPIRATION_MS: Final = 604_800_000

#: Numbers of producer ids that a warehouse gives out, ten thousand a second for three years. The
#: other 23 bits of an id are a tag that nobody can guess: who tries needs millions of requests for
#: an id that he could have asked for.
PRODUCER_NUMBER_MAX: Final = 2**40 - 1

#: A group's name, as long as a file name may be.
GROUP_NAME_BYTES_MAX: Final = 255

#: A member's ids, rack and topic pattern: each is kept for every member.
GROUP_TEXT_BYTES_MAX: Final = 1_000

#: Topics that one member names; more are for a pattern.
SUBSCRIBED_TOPICS_MAX: Final = 10_000

#: Partitions that one member owns or asks the offsets of: ten topics of the most partitions.
GROUP_PARTITIONS_MAX: Final = 100_000

#: A session has to hold a few heartbeats; the same bounds are for max.poll.interval.ms, and some
#: work on one batch takes hours.
SESSION_TIMEOUT_MS_MIN: Final = 100
SESSION_TIMEOUT_MS_MAX: Final = 86_400_000

#: Offsets of one commit, which is checked and queued in one step of the event loop, 50 us each.
#: Clients send more in several.
OFFSETS_PER_COMMIT_MAX: Final = 1_000

#: A transactional.id, as long as a topic's name.
TRANSACTIONAL_ID_BYTES_MAX: Final = 249

#: Commits that wait in a consumer: each says all that those before it said, and a coordinator that
#: does not answer takes none of them.
COMMITS_WAITING_MAX: Final = 1_000

assert ROW_GROUP_BYTES_MAX <= COMMIT_BYTES_MAX
