#include "backends/remote/client/heartbeat.h"

enum heartbeat_verdict heartbeat_check(
	struct heartbeat *heartbeat, const struct heartbeat_state *state)
{
	bool slept = state->now_ms - heartbeat->checked_ms > HEARTBEAT_SLEPT_MS;
	int64_t waited_ms = state->now_ms - heartbeat->pinged_ms;

	heartbeat->checked_ms = state->now_ms;
	if (!heartbeat->pinged_ms) {
		if (state->silence_ms <= (state->is_busy ? HEARTBEAT_BUSY_MS : HEARTBEAT_IDLE_MS))
			return HEARTBEAT_QUIET;
		heartbeat->pinged_ms = state->now_ms;
		heartbeat->ping_bytes = state->received_bytes;
		return HEARTBEAT_SEND;
	}
	if (slept || state->received_bytes != heartbeat->ping_bytes) {
		heartbeat->pinged_ms = 0;
		return HEARTBEAT_GOOD;
	}
	if (waited_ms > state->patience_ms)
		return HEARTBEAT_LOST;
	return waited_ms > HEARTBEAT_LATE_MS ? HEARTBEAT_LATE : HEARTBEAT_QUIET;
}
