// The connection, and what the program was told: host, port, mutex and the number of turns.
import Redis from "ioredis";

const [, , host, port, name, count] = process.argv;

export const redis = new Redis(Number(port), host);
export const mutex = name;
export const turns = Number(count);
