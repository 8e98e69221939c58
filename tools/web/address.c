#include "tools/web/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "ops/support/cleanup.h"

struct range4 {
	uint32_t first; /* host order */
	unsigned bits;
};

static const struct range4 ranges4[] = {
	{0x00000000, 8},  /* 0/8: this host */
	{0x0a000000, 8},  /* 10/8 */
	{0x64400000, 10}, /* 100.64/10: carrier NAT */
	{0x7f000000, 8},  /* 127/8 */
	{0xa9fe0000, 16}, /* 169.254/16: link-local, and the metadata of clouds */
	{0xac100000, 12}, /* 172.16/12 */
	{0xc0000000, 24}, /* 192.0.0/24 */
	{0xc0000200, 24}, /* 192.0.2/24 */
	{0xc0a80000, 16}, /* 192.168/16 */
	{0xc6120000, 15}, /* 198.18/15 */
	{0xc6336400, 24}, /* 198.51.100/24 */
	{0xcb007100, 24}, /* 203.0.113/24 */
	{0xe0000000, 4},  /* 224/4: multicast */
	{0xf0000000, 4},  /* 240/4, broadcast */
};

struct range6 {
	uint8_t first[16];
	unsigned bits;
	int carries_at; /* offset of the IPv4 address that decides; -1: the range is not public */
	uint8_t flip;   /* XORed with each byte of that address */
};

static const struct range6 ranges6[] = {
	{{[10] = 0xff, [11] = 0xff}, 96, 12, 0},           /* ::ffff:0:0/96 mapped */
	{{0}, 128, -1, 0},                                 /* :: */
	{{[15] = 1}, 128, -1, 0},                          /* ::1 */
	{{0}, 96, 12, 0},                                  /* ::/96 compatible */
	{{0x00, 0x64, 0xff, 0x9b}, 96, 12, 0},             /* 64:ff9b::/96 NAT64 */
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, -1, 0}, /* 64:ff9b:1::/48 local NAT64 */
	{{0x20, 0x02}, 16, 2, 0},                          /* 2002::/16 6to4 */
	{{0x20, 0x01, 0x00, 0x00}, 32, 12, 0xff},          /* 2001::/32 Teredo */
	{{0x20, 0x01, 0x0d, 0xb8}, 32, -1, 0},             /* 2001:db8::/32 */
	{{0xfc}, 7, -1, 0},                                /* fc00::/7 */
	{{0xfe, 0x80}, 10, -1, 0},                         /* fe80::/10 */
	{{0xfe, 0xc0}, 10, -1, 0},                         /* fec0::/10 */
	{{0xff}, 8, -1, 0},                                /* ff00::/8 */
};

static bool is_public4(uint32_t address)
{
	for (size_t i = 0; i < array_size(ranges4); i++)
		if (((address ^ ranges4[i].first) >> (32 - ranges4[i].bits)) == 0)
			return false;
	return true;
}

static bool starts_with(const uint8_t *address, const uint8_t *first, unsigned bits)
{
	unsigned rest = bits % 8;

	return memcmp(address, first, bits / 8) == 0 &&
	       (!rest || ((address[bits / 8] ^ first[bits / 8]) >> (8 - rest)) == 0);
}

static bool is_public6(const uint8_t address[16])
{
	for (size_t i = 0; i < array_size(ranges6); i++) {
		const struct range6 *range = &ranges6[i];
		const uint8_t *carried = address + range->carries_at;
		uint32_t flip = range->flip * 0x01010101U;

		if (!starts_with(address, range->first, range->bits))
			continue;
		if (range->carries_at < 0)
			return false;
		return is_public4(((uint32_t)carried[0] << 24 | (uint32_t)carried[1] << 16 |
					  (uint32_t)carried[2] << 8 | carried[3]) ^
				  flip);
	}
	return true;
}

bool address_is_public(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return is_public4(ntohl(
			((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
	if (address->sa_family == AF_INET6)
		return is_public6(
			((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
	return false;
}

bool address_host_is_private(const char *host)
{
	static const char local[] = "localhost";
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	size_t length = strlen(host), tail = sizeof(local) - 1;
	cleanup_free char *bare = NULL;
	struct addrinfo *found;
	bool is_private;

	length -= length && host[length - 1] == '.';
	if (length >= tail && strncasecmp(host + length - tail, local, tail) == 0 &&
		(length == tail || host[length - tail - 1] == '.'))
		return true;
	bare = length > 2 && host[0] == '[' ? strndup(host + 1, length - 2) : strdup(host);
	if (!bare || getaddrinfo(bare, NULL, &hints, &found) != 0)
		return false;
	is_private = !address_is_public(found->ai_addr);
	freeaddrinfo(found);
	return is_private;
}
