/*
 * Checks of cards that are bound to uio_pci_generic or igb_uio.
 *
 * UIO lets several processes open a card, and DPDK resets each card that it
 * probes. So nothing of ours may probe a card that another process has. Such a
 * card must not even be opened: the kernel's driver stops a card's DMA whenever
 * anybody closes its file.
 */
#include "dpdk_glue/pci.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "dpdk_glue/glue_priv.h"

/* Returns whether a process has a file open; only root sees every process. */
static bool has_open(const char *root, const char *pid, const char *file)
{
	char path[PATH_MAX], target[64];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/proc/%s/fd", root, pid);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target,
				       sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		found = strcmp(target, file) == 0;
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool find_holder(const char *root, const char *file, char *pid,
			size_t pid_len)
{
	char path[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/proc", root);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    strlen(entry->d_name) >= pid_len)
			continue;
		found = has_open(root, entry->d_name, file);
		if (found)
			strcpy(pid, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

int glue_pci_check_uio(const char *root, const struct glue_pci_device *device,
		       char *err, size_t err_len)
{
	char file[32], pid[16];

	if (!device->uio[0])
		return 0;
	snprintf(file, sizeof(file), "/dev/%.15s", device->uio);
	if (find_holder(root, file, pid, sizeof(pid)))
		return glue_fail(err, err_len, -EBUSY,
				 "link pci:%s: another process has the card: "
				 "process %s has %s open; a second program "
				 "would reset the card",
				 device->address, pid, file);
	return 0;
}

/* Only processes with CAP_SYS_ADMIN see physical addresses in /proc. */
int glue_pci_check_uio_user(const char *root,
			    const struct glue_pci_device *device, char *err,
			    size_t err_len)
{
	char path[PATH_MAX];

	if (!device->uio[0])
		return 0;
	snprintf(path, sizeof(path), "%s/dev/%s", root, device->uio);
	if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) < 0)
		return errno == EACCES ? glue_pci_refuse_user(device, path, err,
							      err_len)
				       : glue_fail(err, err_len, -errno,
						   "link pci:%s: %s: %s",
						   device->address, path,
						   strerror(errno));
	if (!glue_pci_has_capability(CAP_SYS_ADMIN))
		return glue_fail(err, err_len, -EPERM,
				 "link pci:%s: without an IOMMU the card needs "
				 "physical addresses, which only root sees "
				 "(CAP_SYS_ADMIN): run as root, or bind the "
				 "card to vfio-pci behind an IOMMU",
				 device->address);
	return 0;
}

/* ---- locks ---- */

#define CLAIMS_MAX 64

static struct {
	char address[32];
	int fd;
} claims[CLAIMS_MAX];
static unsigned n_claims;

static bool is_claimed(const char *address)
{
	for (unsigned i = 0; i < n_claims; i++)
		if (strcmp(claims[i].address, address) == 0)
			return true;
	return false;
}

int glue_pci_claim(const char *root, const char *address, char *err,
		   size_t err_len)
{
	struct glue_pci_device device;
	char path[PATH_MAX];
	int fd, rc;

	glue_pci_read(root, address, &device);
	if (glue_pci_driver_use(device.driver) != GLUE_PCI_UIO ||
	    is_claimed(device.address))
		return 0;
	if (n_claims == CLAIMS_MAX)
		return glue_fail(err, err_len, -ENOSPC,
				 "link pci:%s: this process has %d cards "
				 "already",
				 address, CLAIMS_MAX);
	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", root,
		 device.address);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return glue_fail(err, err_len, -errno, "link pci:%s: %s: %s",
				 address, path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		rc = glue_fail(err, err_len, -EBUSY,
			       "link pci:%s: another process has the card: it "
			       "has locked %s; a second program would reset "
			       "the card",
			       address, path);
	else
		rc = glue_pci_check_uio(root, &device, err, err_len);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	strcpy(claims[n_claims].address, device.address);
	claims[n_claims++].fd = fd;
	return 0;
}

void glue_pci_release(void)
{
	while (n_claims)
		close(claims[--n_claims].fd);
}
