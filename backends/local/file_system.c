#include "backends/local/file_system.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/vfs.h>

#include "ops/support/cleanup.h"

enum {
	NETWORK = FILE_SYSTEM_SHARED,
	BY_PROGRAM = FILE_SYSTEM_SHARED | FILE_SYSTEM_GENERATED_IF_EMPTY,
	BY_KERNEL = FILE_SYSTEM_SHARED | FILE_SYSTEM_GENERATED,
};

unsigned file_system_traits(int fd)
{
	static const struct {
		uint32_t type;
		unsigned traits;
	} types[] = {
		{0x6969, NETWORK},        /* nfs */
		{0x517b, NETWORK},        /* smbfs */
		{0xff534d42, NETWORK},    /* cifs */
		{0xfe534d42, NETWORK},    /* smb2 */
		{0x01021997, NETWORK},    /* 9p */
		{0x00c36400, NETWORK},    /* ceph */
		{0x0bd00bd0, NETWORK},    /* Lustre */
		{0x47504653, NETWORK},    /* GPFS */
		{0x19830326, NETWORK},    /* BeeGFS */
		{0xaad7aaea, NETWORK},    /* PanFS */
		{0x01161970, NETWORK},    /* gfs2 */
		{0x7461636f, NETWORK},    /* ocfs2 */
		{0x5346414f, NETWORK},    /* OpenAFS */
		{0x6b414653, NETWORK},    /* afs */
		{0x73757245, NETWORK},    /* coda */
		{0x786f4256, NETWORK},    /* vboxsf */
		{0xbacbacbc, NETWORK},    /* vmhgfs */
		{0x65735546, BY_PROGRAM}, /* fuse; sshfs, GlusterFS, virtiofs */
		{0x9fa0, BY_KERNEL},      /* proc */
		{0x62656572, BY_KERNEL},  /* sysfs */
		{0x0027e0eb, BY_KERNEL},  /* cgroup */
		{0x63677270, BY_KERNEL},  /* cgroup2 */
		{0x64626720, BY_KERNEL},  /* debugfs */
		{0x74726163, BY_KERNEL},  /* tracefs */
		{0x73636673, BY_KERNEL},  /* securityfs */
		{0x62656570, BY_KERNEL},  /* configfs */
		{0x65735543, BY_KERNEL},  /* fusectl */
		{0x42494e4d, BY_KERNEL},  /* binfmt_misc */
		{0x07655821, BY_KERNEL},  /* resctrl */
		{0xf97cff8c, BY_KERNEL},  /* selinux */
		{0x43415d53, BY_KERNEL},  /* smack */
		{0xcafe4a11, BY_KERNEL},  /* bpf */
	};
	struct statfs found;

	if (fstatfs(fd, &found) < 0)
		return 0;
	for (size_t i = 0; i < array_size(types); i++)
		if ((uint32_t)found.f_type == types[i].type)
			return types[i].traits;
	return 0;
}
