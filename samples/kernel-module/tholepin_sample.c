// SPDX-License-Identifier: GPL-2.0-only
/*
 * Simulated hardware: character devices /dev/tholepin-sample0 and on, which read as zeros and accept every write.
 * Each has a writable file numa_node in sysfs, so that a machine with any NUMA zones can have devices in them:
 *
 *	echo 1 > /sys/class/misc/tholepin-sample0/numa_node
 *
 * In: the parameters devices (how many) and nodes (their zones, by turns). Out: misc devices. Never: real hardware, or memory
 * for written data.
 */
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/numa.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

/* Minor numbers of misc devices are few. */
#define MOST 64
#define PREFIX "tholepin-sample"

static unsigned int devices = 2;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "how many devices there are, 1 to 64 (default 2)");

static int nodes[MOST];
static unsigned int nodes_given;
module_param_array(nodes, int, &nodes_given, 0444);
MODULE_PARM_DESC(nodes, "NUMA zones of the devices, by turns; -1: none (default: all zones of the machine, by turns)");

struct sample {
	struct miscdevice misc;
	char name[sizeof(PREFIX) + 4];
	int node;
};

static struct sample *samples;

/* Misc devices keep themselves as their device's data. */
static struct sample *sample_of(struct device *dev)
{
	struct miscdevice *misc = dev_get_drvdata(dev);

	return container_of(misc, struct sample, misc);
}

static ssize_t numa_node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return scnprintf(buf, PAGE_SIZE, "%d\n", READ_ONCE(sample_of(dev)->node));
}

static ssize_t numa_node_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	int node;
	int error = kstrtoint(buf, 0, &node);

	if (error)
		return error;
	if (node < NUMA_NO_NODE || node >= MAX_NUMNODES)
		return -EINVAL;
	WRITE_ONCE(sample_of(dev)->node, node);
	/* Wakes readers of uevents. */
	kobject_uevent(&dev->kobj, KOBJ_CHANGE);
	return count;
}

static DEVICE_ATTR_RW(numa_node);

static struct attribute *sample_attrs[] = {
	&dev_attr_numa_node.attr,
	NULL,
};

static const struct attribute_group sample_group = {
	.attrs = sample_attrs,
};

static const struct attribute_group *sample_groups[] = {
	&sample_group,
	NULL,
};

static ssize_t sample_read(struct file *file, char __user *buf, size_t count, loff_t *at)
{
	return clear_user(buf, count) ? -EFAULT : count;
}

static ssize_t sample_write(struct file *file, const char __user *buf, size_t count, loff_t *at)
{
	return count;
}

static const struct file_operations sample_fops = {
	.owner = THIS_MODULE,
	.read = sample_read,
	.write = sample_write,
};

/* The default zone of a device: those of the machine by turns. */
static int usual_node(unsigned int index)
{
	unsigned int left = index % num_online_nodes();
	int node;

	for_each_online_node(node) {
		if (!left--)
			return node;
	}
	return NUMA_NO_NODE;
}

static void forget(unsigned int count)
{
	while (count--)
		misc_deregister(&samples[count].misc);
	kfree(samples);
}

static int __init sample_init(void)
{
	unsigned int index;
	int error;

	if (!devices || devices > MOST) {
		pr_err(PREFIX ": devices must be from 1 to %d, not %u\n", MOST, devices);
		return -EINVAL;
	}
	samples = kcalloc(devices, sizeof(*samples), GFP_KERNEL);
	if (!samples)
		return -ENOMEM;
	for (index = 0; index < devices; index++) {
		struct sample *sample = &samples[index];

		snprintf(sample->name, sizeof(sample->name), PREFIX "%u", index);
		sample->node = nodes_given ? nodes[index % nodes_given] : usual_node(index);
		sample->misc.minor = MISC_DYNAMIC_MINOR;
		sample->misc.name = sample->name;
		sample->misc.fops = &sample_fops;
		sample->misc.groups = sample_groups;
		error = misc_register(&sample->misc);
		if (error) {
			pr_err(PREFIX ": no device %s: %d\n", sample->name, error);
			forget(index);
			return error;
		}
	}
	pr_info(PREFIX ": %u devices\n", devices);
	return 0;
}

static void __exit sample_exit(void)
{
	forget(devices);
	pr_info(PREFIX ": gone\n");
}

module_init(sample_init);
module_exit(sample_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("tholepin");
MODULE_DESCRIPTION("Character devices with a NUMA zone of one's choice");
MODULE_VERSION("1.0.0");
