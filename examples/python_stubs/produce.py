"""Produce with nothing but the stubs that protoc generates: what any language can do.

Generate them (pip install grpcio grpcio-tools), then run:

    mkdir stubs
    python -m grpc_tools.protoc -I ingest_gateway/proto \\
        --python_out=stubs --grpc_python_out=stubs mainstem/v1/log.proto
    PYTHONPATH=stubs python examples/python_stubs/produce.py HOST:PORT TOPIC
"""

from __future__ import annotations

import sys

import grpc

from mainstem.v1 import log_pb2, log_pb2_grpc


def main(address: str, topic: str) -> None:
    request = log_pb2.ProduceRequest(
        topic=topic,
        acks=log_pb2.ACKS_ALL,
        records=log_pb2.Records(
            records=[
                # The gateway places a record by its key, as Kafka's clients do.
                log_pb2.Record(key=b"alice", value=b'{"total": 9.5}'),
                log_pb2.Record(key=b"bob", value=b'{"total": 3.0}', partition=0),
                # A field that is not set is null, which is not the same as empty.
                log_pb2.Record(
                    key=b"carol", headers=[log_pb2.Header(key="source", value=b"stubs")]
                ),
            ]
        ),
    )
    with grpc.insecure_channel(address) as channel:
        stub = log_pb2_grpc.LogStub(channel)
        # A failed call is a grpc.RpcError; its details have google.rpc.ErrorInfo with a code.
        answer = stub.Produce(request, timeout=30)
        for record, position in zip(request.records.records, answer.positions, strict=True):
            print(
                f"{record.key.decode()}: partition {position.partition}, offset {position.offset}"
            )
        print(f"in version {answer.table_version} of the Delta table")

        # The other call has many batches under way at once. The answers to one topic come in order.
        def batches():
            for number in range(3):
                records = log_pb2.Records(records=[log_pb2.Record(value=b"%d" % number)])
                yield log_pb2.ProduceRequest(correlation_id=number, topic=topic, records=records)

        for answer in stub.ProduceStream(batches(), timeout=30):
            if answer.HasField("error"):
                sys.exit(f"batch {answer.correlation_id}: {answer.error.message}")
            where = answer.positions[0]
            print(
                f"batch {answer.correlation_id}: partition {where.partition}, offset {where.offset}"
            )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
