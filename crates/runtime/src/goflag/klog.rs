//! The flags that Go programs have from klog.
//!
//! In: nothing. Out: a list for a [`FlagSet`](super::FlagSet). Never: an effect: logs go to standard error, and callers
//! read `-v` only (`int("v")`).

use super::Flag;
use super::Kind::{Bool, Int, Text};

/// klog's flags with its defaults. All are accepted, so that manifests written for Go programs keep working.
pub const KLOG: &[Flag] = &[
    Flag {
        name: "v",
        kind: Int,
        default: "0",
        help: "how much to log: up to 3 info, 4 and 5 debug, from 6 on trace",
    },
    Flag {
        name: "vmodule",
        kind: Text,
        default: "",
        help: "accepted, without effect: there are no levels by file",
    },
    Flag {
        name: "logtostderr",
        kind: Bool,
        default: "true",
        help: "accepted, without effect: logs go to standard error",
    },
    Flag {
        name: "alsologtostderr",
        kind: Bool,
        default: "false",
        help: "accepted, without effect: logs go to standard error",
    },
    Flag {
        name: "stderrthreshold",
        kind: Text,
        default: "2",
        help: "accepted, without effect: all logs go to standard error",
    },
    Flag {
        name: "log_dir",
        kind: Text,
        default: "",
        help: "accepted, without effect: no log files are written",
    },
    Flag {
        name: "log_file",
        kind: Text,
        default: "",
        help: "accepted, without effect: no log files are written",
    },
    Flag {
        name: "log_file_max_size",
        kind: Int,
        default: "1800",
        help: "accepted, without effect: no log files are written",
    },
    Flag {
        name: "log_backtrace_at",
        kind: Text,
        default: ":0",
        help: "accepted, without effect: there are no stack traces",
    },
    Flag {
        name: "add_dir_header",
        kind: Bool,
        default: "false",
        help: "accepted, without effect: lines name the module",
    },
    Flag {
        name: "skip_headers",
        kind: Bool,
        default: "false",
        help: "accepted, without effect: lines keep time and level",
    },
    Flag {
        name: "skip_log_headers",
        kind: Bool,
        default: "false",
        help: "accepted, without effect: no log files are written",
    },
    Flag {
        name: "one_output",
        kind: Bool,
        default: "false",
        help: "accepted, without effect: logs go to standard error",
    },
];
