/* Which handler serves which request. */
#include "backends/remote/server/server_internal.h"

request_handler server_request_handler(unsigned type)
{
	static const request_handler handlers[REQUEST_END] = {
#define REQUEST(NAME, name, flags) [REQUEST_##NAME] = handle_##name,
#include "backends/remote/wire/requests.def"
#undef REQUEST
	};

	return type < REQUEST_END ? handlers[type] : NULL;
}
