#include "fs/mount/mount.h"

bool mount_note_change(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at)
{
	return m->control_calls && m->control_calls->note_change(m, path, own_age_ms, at);
}

static uint32_t swap_ids(const struct mount *m, uint32_t id, uint32_t one, uint32_t other)
{
	if (m->options->idmap_none)
		return id;
	if (id == one)
		return other;
	return id == other ? one : id;
}

uid_t mount_swap_uid(const struct mount *m, uid_t uid)
{
	return swap_ids(m, uid, m->workspace_uid, m->mount_uid);
}

gid_t mount_swap_gid(const struct mount *m, gid_t gid)
{
	return swap_ids(m, gid, m->workspace_gid, m->mount_gid);
}
