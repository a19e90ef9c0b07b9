//! Values that no flag expects.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use runtime::random::Random;

/// One of these.
pub(super) fn pick<'a, T: ?Sized>(random: &mut Random, from: &[&'a T]) -> &'a T {
    let index = random.below(from.len() as u64);
    from[usize::try_from(index).unwrap()]
}

/// Whether something with this chance, in percent, comes to pass.
pub(super) fn chance(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

/// Scalars at the edges of what types hold.
pub(super) const SCALARS: &[&str] = &[
    "",
    " ",
    "0",
    "-0",
    "-1",
    "1",
    "7",
    "64",
    "65",
    "1000000",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "99999999999999999999999999",
    "1e308",
    "1e-400",
    "NaN",
    "inf",
    "0x10",
    "0o7",
    "1_000",
    "+5",
    "true",
    "null",
    "~",
    "yes",
    "1h1h",
    "-5s",
    "9999999h",
    "1ns",
    "0.0000001s",
    "1.5.6",
    "2Ei",
    "99999Ei",
    "-1Gi",
    "1e400Ki",
    "a=b=c",
    "=",
    "a=",
    "key=value:NoSchedule:x",
    "!",
    "!!",
    ",",
    ",,,",
    "a,b,,c",
    "/",
    "//",
    "a/b/c",
    "..",
    "../..",
    "::1",
    "[::]:0",
    "1.2.3.4:99999",
    "256.256.256.256",
    "http://",
    "https://[",
    "unix://",
    "fake://",
    "-",
    "--",
    "---",
    "*",
    "[",
    "{",
    "}",
    "%s%n",
    "${X:-${X}}",
    "$(id)",
    "`id`",
    "'",
    "\"",
    "\\",
    "\u{0}",
    "\u{1b}[2J\u{7}",
    "\u{202e}abc",
    "\u{feff}x",
    "Ⅷ",
    "🦀",
    "kubernetes:v1.",
    "openshift:4.999999999999",
    "kubernetes:-1.-1",
    "0-4294967295",
    "1-",
    "5-1",
    "0,0,0",
    "4294967295x4294967295",
    "1x",
    "2x16+gpu18446744073709551615",
    "single-numa-node",
    "pod",
    "example.com/a",
    "example.com/",
    "kube-system/x",
    "Bad_Name",
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/proc",
    "/missing/x",
    "/proc/self/environ",
];

/// A value of a flag. Paths of it lead nowhere that matters: what is written stays in the run's own folder.
pub(super) fn hostile(random: &mut Random, port: u16) -> OsString {
    match random.below(20) {
        0 => OsString::from_vec(vec![0xff, 0xfe, b'a']),
        1 => "x".repeat(100_000).into(),
        2 => "1".repeat(5_000).into(),
        3 => ",a".repeat(20_000).into(),
        4 => format!("http://127.0.0.1:{port}/").into(),
        5 => random.bits().to_string().into(),
        6 => format!("-{}", random.bits()).into(),
        7 => "(".repeat(50_000).into(),
        8 => "fifo".into(),
        // No argument of a process holds a NUL.
        _ => pick(random, SCALARS).replace('\0', "").into(),
    }
}
