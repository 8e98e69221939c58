/* A peer that sends anything as its compressed frames: how long each is said to be, and its bytes.
 */
#include <stdlib.h>

#include "backends/remote/wire/compress.h"
#include "backends/remote/wire/protocol.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_reader in = wire_reader_over(data, size);
	struct decompressor *d;
	int r = 0;

	if (decompressor_new(&d) < 0)
		return 0;
	while (r == 0 && wire_reader_left(&in) > 0) {
		size_t said = wire_get_number_max(&in, FRAME_PAYLOAD_MAX_BYTES), packed_size;
		const uint8_t *packed = wire_get_bytes(&in, &packed_size);
		uint8_t *out = in.failed ? NULL : malloc(said + 1); /* a sanitizer sees more */

		r = out ? decompressor_run(d, packed, packed_size, out, said) : -1;
		free(out);
	}
	decompressor_free(d);
	return 0;
}
