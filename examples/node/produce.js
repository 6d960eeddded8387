// Produces to a topic from Node.js with nothing but the .proto file.
//
// Usage: node produce.js HOST:PORT TOPIC [PROTO_ROOT]
'use strict';

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const [address, topic, protoRoot = path.join(__dirname, '../../ingest_gateway/proto')] =
  process.argv.slice(2);
if (!topic) {
  console.error('usage: node produce.js HOST:PORT TOPIC [PROTO_ROOT]');
  process.exit(2);
}

const definition = protoLoader.loadSync('mainstem/v1/log.proto', {
  includeDirs: [protoRoot],
  longs: String, // offsets are 64 bits, which a Number cannot hold
  enums: String,
  defaults: true, // a 0 in an answer is 0, not undefined
});
const { mainstem } = grpc.loadPackageDefinition(definition);
const log = new mainstem.v1.Log(address, grpc.credentials.createInsecure());
const deadline = () => ({ deadline: Date.now() + 30_000 });

// One batch, one answer.
function produce() {
  const records = [
    { key: Buffer.from('alice'), value: Buffer.from('{"total": 9.5}') },
    // A field that is not set is null, which is not the same as empty.
    { key: Buffer.from('bob'), headers: [{ key: 'source', value: Buffer.from('node') }] },
  ];
  return new Promise((resolve, reject) => {
    log.Produce({ topic, acks: 'ACKS_ALL', records: { records } }, deadline(), (error, answer) => {
      if (error) return reject(error);
      answer.positions.forEach(({ partition, offset }, index) => {
        console.log(`${records[index].key}: partition ${partition}, offset ${offset}`);
      });
      console.log(`in version ${answer.tableVersion} of the Delta table`);
      return resolve();
    });
  });
}

// Many batches under way at once; the answers to one topic come in order.
function produceStream(count) {
  return new Promise((resolve, reject) => {
    const stream = log.ProduceStream(deadline());
    stream.on('error', reject);
    stream.on('end', resolve);
    stream.on('data', ({ correlationId, error, positions }) => {
      if (error) {
        console.error(`batch ${correlationId}: ${error.code}: ${error.message}`);
        process.exitCode = 1;
      } else {
        const [{ partition, offset }] = positions;
        console.log(`batch ${correlationId}: partition ${partition}, offset ${offset}`);
      }
    });
    for (let number = 0; number < count; number += 1) {
      const records = [{ value: Buffer.from(`value ${number}`) }];
      stream.write({ correlationId: number, topic, acks: 'ACKS_ALL', records: { records } });
    }
    stream.end();
  });
}

produce()
  .then(() => produceStream(3))
  .catch((error) => {
    console.error(`${grpc.status[error.code] ?? 'failed'}: ${error.details ?? error.message}`);
    process.exitCode = 1;
  })
  .finally(() => log.close());
