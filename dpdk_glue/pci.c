/*
 * Checks whether a network card on the PCI bus can be used, by sysfs, before
 * DPDK tries: DPDK reports the same error for a dozen causes.
 */
#include "dpdk_glue/pci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dpdk_glue/glue_priv.h"

#define MIB    (1u << 20)
#define BRIDGE "0x06" /* how the class of a bridge begins */

static void copy_text(const char *from, char *out, size_t out_len)
{
	size_t len = strnlen(from, out_len - 1);

	memcpy(out, from, len);
	out[len] = '\0';
}

/* Reads the last part of the link root + path + file; false if it is none. */
static bool read_link_name(const char *root, const char *path, const char *file,
			   char *out, size_t out_len)
{
	char full[PATH_MAX], target[PATH_MAX];
	const char *slash;
	ssize_t n;

	snprintf(full, sizeof(full), "%s%s/%s", root, path, file);
	n = readlink(full, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	slash = strrchr(target, '/');
	copy_text(slash ? slash + 1 : target, out, out_len);
	return true;
}

static bool read_line(const char *root, const char *path, const char *file,
		      char *out, int out_len)
{
	char full[PATH_MAX];
	bool found;
	FILE *in;

	snprintf(full, sizeof(full), "%s%s/%s", root, path, file);
	in = fopen(full, "re");
	if (!in)
		return false;
	found = fgets(out, out_len, in) != NULL;
	fclose(in);
	if (found)
		out[strcspn(out, "\n")] = '\0';
	return found;
}

/* Finds a name in a folder that begins with start; false if there is none. */
static bool find_name(const char *root, const char *path, const char *start,
		      char *out, size_t out_len)
{
	char full[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(full, sizeof(full), "%s%s", root, path);
	dir = opendir(full);
	if (!dir)
		return false;
	do
		entry = readdir(dir);
	while (entry && (entry->d_name[0] == '.' ||
			 strncmp(entry->d_name, start, strlen(start)) != 0));
	if (entry)
		copy_text(entry->d_name, out, out_len);
	closedir(dir);
	return entry != NULL;
}

/* Finds the kernel's interface of a card; virtio's is a level below. */
static void find_interface(const char *root, const char *path, char *out,
			   size_t out_len)
{
	char folder[PATH_MAX], virtio[32] = "";

	snprintf(folder, sizeof(folder), "%s/net", path);
	if (find_name(root, folder, "", out, out_len) ||
	    !find_name(root, path, "virtio", virtio, sizeof(virtio)))
		return;
	snprintf(folder, sizeof(folder), "%s/%s/net", path, virtio);
	find_name(root, folder, "", out, out_len);
}

void glue_pci_read(const char *root, const char *address,
		   struct glue_pci_device *out)
{
	char path[64], folder[80], node[16];

	memset(out, 0, sizeof(*out));
	copy_text(address, out->address, sizeof(out->address));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
	out->exists =
		read_line(root, path, "class", out->class, sizeof(out->class));
	read_line(root, path, "vendor", out->vendor, sizeof(out->vendor));
	read_line(root, path, "device", out->device, sizeof(out->device));
	read_link_name(root, path, "driver", out->driver, sizeof(out->driver));
	read_link_name(root, path, "iommu_group", out->group,
		       sizeof(out->group));
	find_interface(root, path, out->interface, sizeof(out->interface));
	snprintf(folder, sizeof(folder), "%s/uio", path);
	find_name(root, folder, "uio", out->uio, sizeof(out->uio));
	out->node = read_line(root, path, "numa_node", node, sizeof(node))
			    ? atoi(node)
			    : -1;
}

enum glue_pci_use glue_pci_driver_use(const char *driver)
{
	/* These PMDs work beside the kernel's driver, by RDMA verbs. */
	static const char *const shared[] = {"mlx4_core", "mlx5_core", "mana"};

	if (!driver[0])
		return GLUE_PCI_UNBOUND;
	if (strcmp(driver, "vfio-pci") == 0)
		return GLUE_PCI_VFIO;
	if (strcmp(driver, "uio_pci_generic") == 0 ||
	    strcmp(driver, "igb_uio") == 0)
		return GLUE_PCI_UIO;
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
		if (strcmp(driver, shared[i]) == 0)
			return GLUE_PCI_SHARED;
	return GLUE_PCI_KERNEL;
}

bool glue_pci_has_iommu(const char *root)
{
	char group[32];

	return find_name(root, "/sys/kernel/iommu_groups", "", group,
			 sizeof(group));
}

/* ---- the checks, one a cause ---- */

static int check_bound(const char *root, const struct glue_pci_device *device,
		       char *err, size_t err_len)
{
	const char *address = device->address;

	switch (glue_pci_driver_use(device->driver)) {
	case GLUE_PCI_VFIO:
	case GLUE_PCI_UIO:
	case GLUE_PCI_SHARED:
		return 0;
	case GLUE_PCI_KERNEL:
		return glue_fail(err, err_len, -EBUSY,
				 "link pci:%s: the kernel's driver %s has the "
				 "card%s%s; to take it from the kernel: "
				 "modprobe vfio-pci; dpdk-devbind.py "
				 "--bind=vfio-pci %s",
				 address, device->driver,
				 device->interface[0] ? " as interface " : "",
				 device->interface, address);
	case GLUE_PCI_UNBOUND:
		break;
	}
	if (!glue_pci_has_iommu(root))
		return glue_fail(
			err, err_len, -ENODEV,
			"link pci:%s: no driver has the card, and vfio-pci "
			"needs an IOMMU, which is off or missing: switch it on "
			"(firmware; intel_iommu=on), or bind to "
			"uio_pci_generic, with which the card can write to any "
			"memory: modprobe uio_pci_generic; dpdk-devbind.py "
			"--bind=uio_pci_generic %s",
			address, address);
	return glue_fail(err, err_len, -ENODEV,
			 "link pci:%s: no driver has the card; bind it: "
			 "modprobe vfio-pci; dpdk-devbind.py --bind=vfio-pci "
			 "%s",
			 address, address);
}

/* VFIO gives out a group whole: a device that the kernel drives blocks it. */
static int check_group(const char *root, const struct glue_pci_device *device,
		       char *err, size_t err_len)
{
	char path[PATH_MAX];
	struct glue_pci_device other;
	struct dirent *entry;
	int rc = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/kernel/iommu_groups/%s/devices",
		 root, device->group);
	dir = opendir(path);
	while (dir && rc == 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		glue_pci_read(root, entry->d_name, &other);
		if (strncmp(other.class, BRIDGE, strlen(BRIDGE)) == 0 ||
		    strcmp(other.driver, "pci-stub") == 0)
			continue;
		if (glue_pci_driver_use(other.driver) == GLUE_PCI_KERNEL)
			rc = glue_fail(
				err, err_len, -EBUSY,
				"link pci:%s: %s is in the same IOMMU group "
				"(%s) and belongs to the kernel's driver %s; "
				"VFIO gives out whole groups: bind both to "
				"vfio-pci, or put the card into another slot",
				device->address, other.address, device->group,
				other.driver);
	}
	if (dir)
		closedir(dir);
	return rc;
}

/* " (owner 0, group 104, mode 0660)" */
static void describe_owner(const char *path, char *out, size_t out_len)
{
	struct stat st;

	out[0] = '\0';
	if (stat(path, &st) == 0)
		snprintf(out, out_len, " (owner %u, group %u, mode %04o)",
			 st.st_uid, st.st_gid, st.st_mode & 07777u);
}

int glue_pci_refuse_user(const struct glue_pci_device *device, const char *path,
			 char *err, size_t err_len)
{
	char owner[128];

	describe_owner(path, owner, sizeof(owner));
	return glue_fail(err, err_len, -EACCES,
			 "link pci:%s: user %u may not open %s%s: run as "
			 "root, or give the file to a group of the user's; "
			 "see docs/deploy.md",
			 device->address, (unsigned)geteuid(), path, owner);
}

/* Opens a file and closes it again: only one process may have a group open. */
static int check_device_file(const struct glue_pci_device *device,
			     const char *path, char *err, size_t err_len)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (errno == EBUSY)
		return glue_fail(err, err_len, -EBUSY,
				 "link pci:%s: another process has the card "
				 "(%s is busy); 'fuser -v %s' names it",
				 device->address, path, path);
	if (errno != EACCES && errno != EPERM)
		return glue_fail(err, err_len, -errno, "link pci:%s: %s: %s",
				 device->address, path, strerror(errno));
	return glue_pci_refuse_user(device, path, err, err_len);
}

bool glue_pci_has_capability(unsigned capability)
{
	struct __user_cap_header_struct header = {
		.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {{0}};

	return syscall(SYS_capget, &header, caps) == 0 &&
	       (caps[0].effective & (1u << capability)) != 0;
}

/* VFIO locks all memory that the card may write to. */
static int check_memlock(const struct glue_pci_device *device, unsigned mem_mib,
			 char *err, size_t err_len)
{
	struct rlimit limit;

	if (glue_pci_has_capability(CAP_IPC_LOCK) ||
	    getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / MIB >= mem_mib)
		return 0;
	return glue_fail(err, err_len, -ENOMEM,
			 "link pci:%s: the card needs %u MiB of locked memory, "
			 "and this process may lock %u KiB: ulimit -l %u, or "
			 "LimitMEMLOCK=infinity in the service's unit",
			 device->address, mem_mib,
			 (unsigned)(limit.rlim_cur / 1024), mem_mib * 1024);
}

static int check_vfio(const char *root, const struct glue_pci_device *device,
		      unsigned mem_mib, char *err, size_t err_len)
{
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), "%s/dev/vfio/noiommu-%s", root,
		 device->group);
	if (access(path, F_OK) == 0)
		return check_device_file(device, path, err, err_len);
	rc = check_group(root, device, err, err_len);
	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/dev/vfio/vfio", root);
	rc = check_device_file(device, path, err, err_len);
	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/dev/vfio/%s", root, device->group);
	rc = check_device_file(device, path, err, err_len);
	if (rc < 0)
		return rc;
	return check_memlock(device, mem_mib, err, err_len);
}

int glue_pci_check(const char *root, const char *address, unsigned mem_mib,
		   char *err, size_t err_len)
{
	struct glue_pci_device device;
	int rc;

	glue_pci_read(root, address, &device);
	if (!device.exists)
		return glue_fail(err, err_len, -ENODEV,
				 "link pci:%s: this machine has no PCI device "
				 "there; 'dpdk-devbind.py --status-dev net' "
				 "lists the network cards",
				 address);
	rc = check_bound(root, &device, err, err_len);
	if (rc < 0)
		return rc;
	switch (glue_pci_driver_use(device.driver)) {
	case GLUE_PCI_VFIO:
		return check_vfio(root, &device, mem_mib, err, err_len);
	case GLUE_PCI_UIO:
		rc = glue_pci_check_uio(root, &device, err, err_len);
		return rc < 0 ? rc
			      : glue_pci_check_uio_user(root, &device, err,
							err_len);
	case GLUE_PCI_SHARED:
	case GLUE_PCI_KERNEL:
	case GLUE_PCI_UNBOUND:
		break;
	}
	return 0;
}

/* ---- errors ---- */

/* Debian packages each driver by itself: these are for the cards of a maker. */
static const struct maker {
	const char *vendor;
	const char *drivers;
} makers[] = {
	{"0x8086", "e1000, igc, ixgbe, i40e, ice or iavf"},
	{"0x15b3", "mlx4 or mlx5"},
	{"0x1af4", "virtio"},
	{"0x15ad", "vmxnet3"},
	{"0x1d0f", "ena"},
	{"0x1ae0", "gve"},
	{"0x14e4", "bnxt or bnx2x"},
	{"0x1425", "cxgbe"},
	{"0x1077", "qede"},
	{"0x19e5", "hns3 or hinic"},
	{"0x1924", "sfc"},
};

void glue_pci_explain(const char *root, const char *address, const char *reason,
		      char *err, size_t err_len)
{
	struct glue_pci_device device;
	const char *drivers = "'apt-cache search librte-net' lists them";

	glue_pci_read(root, address, &device);
	if (reason[0]) {
		snprintf(err, err_len, "DPDK could not use it: %s", reason);
		return;
	}
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		if (strcmp(makers[i].vendor, device.vendor) == 0)
			drivers = makers[i].drivers;
	snprintf(err, err_len,
		 "none of DPDK's installed drivers takes the card (%.6s:%.6s); "
		 "install the package of its driver (librte-net-*: %s), or use "
		 "af_packet: or af_xdp: with the kernel's driver",
		 device.vendor, device.device, drivers);
}
