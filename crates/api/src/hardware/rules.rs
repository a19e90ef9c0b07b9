//! The messages of the rules for DeviceConfigs: each names the field and the allowed values.
//!
//! In and out: texts only. `schema` states each rule for the API server, `check` implements it for API servers without
//! CEL.

/// `metadata.name` is on labels.
pub(super) const NAME: &str =
    "metadata.name must have at most 63 characters, because it is the value of a label; choose a shorter one";
/// `spec.driverImage` is a repository.
pub(super) const IMAGE: &str = "driverImage must be the repository of the driver's images, such as registry.example/drivers/acc: \
    lower case letters and digits between slashes, parted by one . or _, by __ or by dashes";
/// `spec.driverImage` without tag.
pub(super) const IMAGE_TAG: &str = "driverImage must have no tag: leave out what follows the last colon, and put the driver's version into \
    driverVersion; the tag is <driverVersion>-<kernel version>";
/// `spec.driverImage` without digest.
pub(super) const IMAGE_DIGEST: &str = "driverImage must have no digest: leave out what begins with @; images with digests are named in \
    kernelMappings[].image";
/// `spec.driverVersion` is in tags and labels.
pub(super) const VERSION: &str = "driverVersion must be part of an image's tag and the value of a label, such as 1.4.2: at most 63 letters, \
    digits and . _ -, with a letter or digit at both ends";
/// One of `spec.nodeSelector` and `spec.allNodes`.
pub(super) const SELECTOR: &str =
    "exactly one of nodeSelector and allNodes: true must say which nodes have the hardware";
/// `spec.nodeSelector` selects.
pub(super) const SELECTOR_EMPTY: &str =
    "nodeSelector must have at least one label; for all nodes leave it out and write allNodes: true";
/// Keys of labels.
pub(super) const LABEL_KEYS: &str = "each key must be a label's: at most 63 letters, digits and . _ - with a letter or digit at both ends, after \
    a lower case domain of at most 253 characters and a slash if it has one";
/// Values of labels.
pub(super) const LABEL_VALUES: &str =
    "each value must be a label's: at most 63 letters, digits and . _ - with a letter or digit at both ends";
/// `spec.moduleName` is a kernel module.
pub(super) const MODULE: &str =
    "moduleName must be a kernel module's, as lsmod shows it: 1 to 55 letters, digits, _ and -";
/// The default of `spec.moduleName` is a kernel module.
pub(super) const MODULE_DEFAULT: &str = "the last part of driverImage is too long for the name of a kernel module, which has at most 55 \
    characters: set moduleName";
/// Names of kernel modules in lists.
pub(super) const MODULES: &str =
    "each must be a kernel module's name, as lsmod shows it: 1 to 55 letters, digits, _ and -";
/// One of `literal` and `regexp`.
pub(super) const MAPPING: &str = "a kernel mapping must have exactly one of literal and regexp";
/// `literal` is a kernel.
pub(super) const LITERAL: &str =
    "literal must be the version of a kernel as uname -r says it, such as 5.14.0-427.el9.x86_64";
/// `regexp` can be read. The API server says why it can not.
pub(super) const REGEXP: &str = "regexp must be a regular expression that RE2 can read";
/// Images in full.
pub(super) const TEMPLATE: &str = "must be an image with its tag or digest, such as registry.example/drivers/acc:1.4.2-${KERNEL_FULL_VERSION}";
/// `moduleName` or `rawArgs`.
pub(super) const RAW_ARGS_ALONE: &str =
    "moduleName and modprobe.rawArgs exclude each other: the arguments have the module's name in them";
/// `rawArgs` beside what it replaces.
pub(super) const RAW_ARGS_BESIDE: &str = "modprobe.rawArgs are all arguments: leave out modprobe.args, modprobe.parameters and \
    modprobe.modulesLoadingOrder";
/// Both lists of `rawArgs`.
pub(super) const RAW_ARGS: &str = "modprobe.rawArgs must have at least one argument in load and in unload";
/// Folders in images.
pub(super) const FOLDER: &str =
    "must be a folder in the image, such as /opt: absolute, without .. and without a slash at its end";
/// `modulesLoadingOrder` on its own.
pub(super) const ORDER: &str = "modprobe.modulesLoadingOrder must have at least two modules, each once";
/// `modulesLoadingOrder` and `moduleName`.
pub(super) const ORDER_FIRST: &str =
    "modprobe.modulesLoadingOrder must begin with moduleName, which has to be set";
/// `filesToSign` on its own.
pub(super) const SIGN_FILES: &str =
    "filesToSign must name at least one file, such as /opt/lib/modules/${KERNEL_FULL_VERSION}/acc.ko";
/// `filesToSign` and `dirName`.
pub(super) const SIGN_FOLDER: &str =
    "sign.filesToSign must be below modprobe.dirName, which is /opt unless it is set";
/// `unsignedImage` or `build`.
pub(super) const SIGN_IMAGE: &str =
    "sign must say what is signed: set sign.unsignedImage, or build for an image that is built before";
/// Keys of tolerations.
pub(super) const TOLERATION_KEY: &str = "key must be a taint's; without a key the operator must be Exists";
/// Operators of tolerations.
pub(super) const TOLERATION_OPERATOR: &str =
    "operator must be Exists or Equal, and with Exists there is no value";
/// Effects of tolerations.
pub(super) const TOLERATION_EFFECT: &str =
    "effect must be NoSchedule, PreferNoSchedule or NoExecute; left out it is all of them";
/// Seconds of tolerations.
pub(super) const TOLERATION_SECONDS: &str = "tolerationSeconds needs effect: NoExecute";
/// What a device plugin is.
pub(super) const PLUGIN: &str =
    "devicePlugin must have config, for tholepin's device plugin, or image, for a vendor's";
/// `config` brings its command.
pub(super) const PLUGIN_COMMAND: &str =
    "devicePlugin.command is a vendor's plugin's: leave it out beside config, or leave config out";
/// Extended resources.
pub(super) const RESOURCES: &str =
    "each must be the name of an extended resource, such as vendor.example/acc, outside of kubernetes.io";
/// `image` without `config` needs `resourceNames` or `driverNames`.
pub(super) const NAMES_NEEDED: &str = "devicePlugin.resourceNames, or driverNames, must name what a vendor's plugin offers, such as \
    vendor.example/acc: by that it is known which pods use the devices; without it write upgradePolicy.podsUsingDevices: Ignore";
/// Drivers of resource claims.
pub(super) const DRIVERS: &str =
    "each must be the name of a driver of resource claims (DRA), a DNS subdomain such as acc.vendor.example";
/// One of `dra` and `devicePlugin`.
pub(super) const DRA_ALONE: &str = "dra and devicePlugin exclude each other, as in KMM's Modules; a device plugin that serves claims too \
    is devicePlugin with driverNames";
/// `dra.driverName`.
pub(super) const DRA_DRIVER: &str = "dra.driverName must be the name of the DRA driver, a DNS subdomain in lower case such as acc.vendor.example";
/// Names of volumes in mounts of `dra`.
pub(super) const DRA_MOUNT: &str = "volumeMounts[].name must be that of an entry of dra.volumes";
/// Names in `dra.deviceClasses`.
pub(super) const DEVICE_CLASS: &str =
    "dra.deviceClasses[].name must be the name of a DeviceClass, a DNS subdomain in lower case, each once";
/// The version of `config`.
pub(super) const CONFIG_VERSION: &str = "devicePlugin.config.version must be v1alpha1";
/// The resources of `config`.
pub(super) const CONFIG_RESOURCES: &str = "devicePlugin.config.resources must have at least one entry, each with the name of an extended resource, \
    such as vendor.example/acc, outside of kubernetes.io";
/// Kinds of volumes.
pub(super) const VOLUME: &str = "a volume must be exactly one of hostPath, configMap, secret and emptyDir";
/// Places of volumes.
pub(super) const HOST_PATH: &str =
    "hostPath.path must be below /dev, /sys, /var, /opt or /run, without ..; KMM takes no other";
/// Names of volumes in mounts.
pub(super) const MOUNT_NAME: &str =
    "volumeMounts[].name must be that of an entry of devicePlugin.volumes, or cdi, which is there by itself";
/// Places of mounts beside `config`.
pub(super) const MOUNT_RESERVED: &str =
    "volumeMounts[].mountPath must be outside of /etc/tholepin/device-plugin, where config is mounted";
/// `maxUnavailable`.
pub(super) const MAX_UNAVAILABLE: &str = "maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%; to upgrade no node \
    write paused: true";

/// Of the ValidatingAdmissionPolicy, and of the condition for clusters without it.
pub(super) const NAMESPACE: &str = "a DeviceConfig must be in a namespace whose name has at most 31 characters: KMM lets a Module's name and \
    namespace have 41 together; choose a shorter namespace";
