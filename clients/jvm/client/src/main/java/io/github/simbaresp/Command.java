package io.github.simbaresp;

import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;

/** The commands that Lettuce does not know. */
@SuppressWarnings("deprecation") // Lettuce 7 deprecates name()
enum Command implements ProtocolKeyword {
    ACQUIRE, GUARD, RELEASE, NEXT, OWNER, CHECK, HISTORY;

    @Override
    public byte[] getBytes() {
        return toString().getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public String toString() {
        return "SIMBA." + name();
    }
}
