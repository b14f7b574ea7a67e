/*
 * Network cards on the PCI bus, as described by sysfs (pci.c). Each function
 * reads files below root: "" for the machine's own; tests pass a folder.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The use that the driver bound to a card allows. */
enum glue_pci_use {
	GLUE_PCI_UNBOUND,
	GLUE_PCI_KERNEL, /* the kernel uses it, DPDK cannot */
	GLUE_PCI_SHARED, /* the kernel and DPDK use it together */
	GLUE_PCI_VFIO,
	GLUE_PCI_UIO,
};

/* A string is "" if sysfs has no value. */
struct glue_pci_device {
	char address[32]; /* DOMAIN:BUS:DEVICE.FUNCTION */
	bool exists;
	char class[16], vendor[16], device[16]; /* "0x8086" */
	char driver[32];			/* bound to the card */
	char group[16];				/* number of its IOMMU group */
	char interface[32];			/* the kernel's name for it */
	char uio[16];				/* "uio0", if bound to UIO */
	int node;				/* NUMA node; -1: none */
};

void glue_pci_read(const char *root, const char *address,
		   struct glue_pci_device *out);

enum glue_pci_use glue_pci_driver_use(const char *driver);

/* Returns whether an IOMMU is in use. */
bool glue_pci_has_iommu(const char *root);

/*
 * Checks whether DPDK can use a card: it exists, has the right driver, is not
 * in use, and this process may open it and lock mem_mib MiB of memory. Returns
 * 0 or -errno with one clear line in err. Opens no card of UIO.
 */
int glue_pci_check(const char *root, const char *address, unsigned mem_mib,
		   char *err, size_t err_len);

/*
 * Locks a card that is bound to UIO, before DPDK probes it, so that coronet
 * programs that start at the same time do not use the same card: the kernel
 * does not prevent that with UIO. The lock lasts until glue_pci_release() or
 * the end of the process; a second call for the card changes nothing. Cards of
 * other drivers are ignored. Not thread-safe. Returns 0 or -errno with one
 * clear line in err: -EBUSY if another process has the card.
 */
int glue_pci_claim(const char *root, const char *address, char *err,
		   size_t err_len);
void glue_pci_release(void);

/*
 * The parts of glue_pci_check() for a card that is bound to UIO: whether
 * another process has it, and whether this process has the rights to use it.
 */
int glue_pci_check_uio(const char *root, const struct glue_pci_device *device,
		       char *err, size_t err_len);
int glue_pci_check_uio_user(const char *root,
			    const struct glue_pci_device *device, char *err,
			    size_t err_len);

/* Writes to err that this user may not open a file, and returns -EACCES. */
int glue_pci_refuse_user(const struct glue_pci_device *device, const char *path,
			 char *err, size_t err_len);

/*
 * Returns whether this process has a capability, one of the first 32 (CAP_...).
 */
bool glue_pci_has_capability(unsigned capability);

/*
 * Writes to err why DPDK has no port for a card that passed the check. reason:
 * what DPDK logged about the card, or "".
 */
void glue_pci_explain(const char *root, const char *address, const char *reason,
		      char *err, size_t err_len);
