use super::*;
use proptest::prelude::*;

const VARIABLES: [(&str, &str); 9] = [
    ("mixed", "abcdEFGH28ij"),
    ("Upper", "ABC"),
    ("path", "/home/me/ideas/a.b.c"),
    ("file", "bash.string.txt"),
    ("abc", "abcABC123ABCabc"),
    ("empty", ""),
    ("umlaut", "äöü"),
    ("form", "${mixed}"),
    ("slash", "a/b/c"),
];

fn lookup(name: &str) -> Option<String> {
    VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

#[test]
fn forms_become_values() {
    let table = [
        ("plain $mixed $", "plain $mixed $"),
        ("${mixed}", "abcdEFGH28ij"),
        ("x${empty}y", "xy"),
        (
            "${missing} ${missing^^} ${#missing} ${missing/a/b}",
            "${missing} ${missing^^} ${#missing} ${missing/a/b}",
        ),
        ("${#mixed} ${#umlaut} ${#empty}", "12 6 0"),
        (
            "${mixed^} ${mixed^^} ${Upper,} ${Upper,,} ${umlaut^} ${empty^}",
            "AbcdEFGH28ij ABCDEFGH28IJ aBC abc Äöü ",
        ),
        ("${path:9} ${path:9:5} ${path:-3}", "ideas/a.b.c ideas /home/me/ideas/a.b.c"),
        (
            "${mixed: -3} ${mixed: -30} ${mixed:30} ${mixed:2:0} ${mixed:2:99}",
            "8ij abcdEFGH28ij   cdEFGH28ij",
        ),
        ("${umlaut:1} ${umlaut:2:2}", "öü ö"),
        ("${file#*.} ${file##*.} ${file%.*} ${file%%.*}", "string.txt txt bash.string bash"),
        ("${slash#*/} ${slash##*/} ${slash%/*} ${slash%%/*}", "b/c c a/b a"),
        ("${file#x} ${file%[a-z][^a-z]} ${file%t[x-z]t}", "bash.string.txt bash.string.txt bash.string."),
        (r"${file#*\*} ${file#bash\.}", "bash.string.txt string.txt"),
        (
            "${abc/abc/X} ${abc//abc/X} ${abc/#abc/X} ${abc/%abc/X}",
            "XABC123ABCabc XABC123ABCX XABC123ABCabc abcABC123ABCX",
        ),
        (
            "${abc/ABC} ${abc//ABC/} ${abc/#x/y} ${abc/%x/y} ${abc//} ",
            "abc123ABCabc abc123abc abcABC123ABCabc abcABC123ABCabc abcABC123ABCabc ",
        ),
        (r"${slash/\//-} ${slash//\//-} ${slash//\//\}}", "a-b/c a-b-c a}b}c"),
        ("${missing-d} ${missing=d} ${missing:-d} ${missing:=d}", "d d d d"),
        ("${empty-d}${empty=d} ${empty:-d} ${empty:=d} ${mixed:-d}", " d d abcdEFGH28ij"),
        ("${missing+d}${missing:+d}${empty:+d} ${empty+d} ${mixed:+d}", " d d"),
        ("${missing:-} ${missing:-a b:c/d}", " a b:c/d"),
        (
            "${missing:-${mixed}} ${missing=x${mixed^^}-y} ${missing-${gone}}",
            "abcdEFGH28ij xABCDEFGH28IJ-y ${gone}",
        ),
        ("${abc/${missing:-ABC}/${Upper,,}}", "abcabc123ABCabc"),
        // Values are not expanded again.
        ("${form}", "${mixed}"),
        ("$${mixed} $$mixed $$", "${mixed} $$mixed $$"),
        ("some ${Upper}$${a$${b}$c${Upper}", "some ABC${a${b}$cABC"),
        ("some $${a=${Upper}}", "some ${a=ABC}"),
    ];
    for (line, wanted) in table {
        assert_eq!(replace(line, &lookup).as_deref(), Ok(wanted), "{line}");
    }
}

#[test]
fn invalid_expressions_are_reported() {
    let table = [
        ("${", 0, "a name"),
        ("ab ${}", 3, "a name"),
        ("${mixed", 0, "unknown expression"),
        ("${mixed?}", 0, "unknown expression"),
        ("${mixed:?gone}", 0, "the offset"),
        ("${a.b}", 0, "unknown expression"),
        ("${mixed:-x", 0, "} is missing"),
        ("${mixed:-\\", 0, "} is missing"),
        ("${mixed/a", 0, "} is missing"),
        ("${mixed:x}", 0, "the offset"),
        ("${mixed:1:-2}", 0, "the length"),
        ("${mixed:1:x}", 0, "the length"),
        ("${missing:x}", 0, "the offset"),
        ("${#mixed^}", 0, "} is missing"),
        ("${a:-${b:-${}}}", 10, "a name"),
    ];
    for (line, at, reason) in table {
        let error = replace(line, &lookup).unwrap_err();
        assert!(error.at == at && error.reason.contains(reason), "{line}: {error:?}");
    }
    let deep = "${a:-".repeat(100) + &"}".repeat(100);
    assert_eq!(replace(&deep, &lookup).unwrap_err().reason, "expressions are nested too deeply");
}

proptest! {
    #[test]
    fn garbage_never_panics(line in r"[$\{\}a:#%/^,=+\-\\0-9ä*?\[\]]{0,40}") {
        let _ = replace(&line, &|name| (name.len() < 3).then(|| format!("v{name}ä/*")));
    }

    /// Text without a dollar sign is text.
    #[test]
    fn plain_text_stays(line in r"[^$\n]{0,60}") {
        prop_assert_eq!(replace(&line, &lookup), Ok(line));
    }
}
