//! Long lists, read by several threads.
//!
//! In: a YAML document as `kubectl get -o yaml` prints a list: `items:` at the start of a line, and each item's first
//! line beginning with `- `. Out: the items in their order, and the rest of the document. Never: another meaning than
//! the document has; one that is not certainly such a list is left to the reader of whole documents.
//!
//! YAML is slow to read, some megabytes a second, and a cluster of a thousand nodes has twenty. The items of a list do
//! not depend on each other, unless an alias names an anchor of another item.
//!
//! Cost: the time of the reader of whole documents, divided by the number of threads; memory for two chunks of each.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::super::{Mode, read_str};

/// Bytes of a chunk, but for its last item.
const CHUNK_BYTES: usize = 128 << 10;
/// Most threads that read one document.
const MAX_THREADS: usize = 8;

/// A list in pieces, each of which is YAML.
#[derive(Debug, PartialEq)]
pub(super) struct ListChunks<'a> {
    /// The document with an empty list.
    pub(super) rest: String,
    /// Lists of some of its items each, in their order.
    pub(super) items: Vec<&'a str>,
}

impl<'a> ListChunks<'a> {
    /// The pieces of a list that is worth several threads; `None` for all else.
    pub(super) fn of(document: &'a str) -> Option<Self> {
        Self::of_size(document, CHUNK_BYTES)
    }

    fn of_size(document: &'a str, size: usize) -> Option<Self> {
        // A directive holds for all of the document.
        if document.len() < 2 * size || document.starts_with('%') {
            return None;
        }
        let (mut at, mut list, mut end) = (0, None, document.len());
        let mut starts = Vec::new();
        for line in document.split_inclusive('\n') {
            let is_item = line.starts_with("- ");
            match list {
                None if line.trim_end() == "items:" => list = Some((at + "items:".len(), at + line.len())),
                Some(_) if is_item => starts.push(at),
                Some(_) if line.starts_with(' ') || line.trim_end().is_empty() => {}
                Some(_) => {
                    end = at;
                    break;
                }
                None => {}
            }
            at += line.len();
        }
        let (head, first) = list?;
        if starts.first() != Some(&first) {
            return None;
        }
        let mut items = Vec::new();
        let mut from = first;
        for start in starts.into_iter().chain([end]) {
            if start - from >= size || start == end {
                items.push(&document[from..start]);
                from = start;
            }
        }
        let rest = format!("{} []\n{}", &document[..head], &document[end..]);
        Some(Self { rest, items })
    }

    /// Hands over the items in their order, up to the first piece that cannot be read alone. Returns the number of
    /// items, and whether those are all.
    pub(super) fn read(&self, take: &mut dyn FnMut(usize, Value)) -> (usize, ControlFlow<()>) {
        let available = thread::available_parallelism().map_or(1, usize::from);
        let threads = available.min(MAX_THREADS).min(self.items.len());
        thread::scope(|scope| {
            let readers: Vec<mpsc::Receiver<Option<Vec<Value>>>> = (0..threads)
                .map(|first| {
                    let (sender, receiver) = mpsc::sync_channel(1);
                    let pieces = self.items.iter().skip(first).step_by(threads);
                    let read = |text: &&str| read_str("", text, Mode::Lenient).ok();
                    // A send fails when an earlier piece could not be read.
                    scope.spawn(move || pieces.map(read).try_for_each(|values| sender.send(values)));
                    receiver
                })
                .collect();
            let mut index = 0;
            for reader in readers.iter().cycle().take(self.items.len()) {
                let Ok(Some(values)) = reader.recv() else { return (index, ControlFlow::Break(())) };
                for value in values {
                    take(index, value);
                    index += 1;
                }
            }
            (index, ControlFlow::Continue(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(text: &str, size: usize) -> Option<(String, Vec<&str>)> {
        ListChunks::of_size(text, size).map(|chunks| (chunks.rest, chunks.items))
    }

    #[test]
    fn lists_as_kubectl_prints_them_are_parted_between_items() {
        let text = "kind: List\nitems:\n- a: 1\n  b:\n  - 2\n\n- |\n  items:\n- c\nmetadata: {}\n";
        let rest = "kind: List\nitems: []\nmetadata: {}\n".to_owned();
        let all = vec!["- a: 1\n  b:\n  - 2\n\n", "- |\n  items:\n", "- c\n"];
        assert_eq!(chunks(text, 1), Some((rest.clone(), all)));
        let two = vec!["- a: 1\n  b:\n  - 2\n\n", "- |\n  items:\n- c\n"];
        assert_eq!(chunks(text, 18), Some((rest, two)));
        assert_eq!(chunks(text, 1000), None, "not worth it");
        for other in [
            "%YAML 1.2\n---\nitems:\n- a\n- b\n",
            "items: [a,\n b]\n",
            "items:\n  - a\n  - b\n",
            "items:\n# first\n- a\n- b\n",
            "spec:\n  items:\n  - a\n",
            "- items\n- b\n",
            "items:\n",
        ] {
            assert_eq!(chunks(other, 1), None, "{other}");
        }
    }

    #[test]
    fn items_come_in_order_up_to_the_first_that_needs_another() {
        let read = |text: &str| {
            let mut found = Vec::new();
            let (count, end) = ListChunks::of_size(text, 1).unwrap().read(&mut |index, value| {
                assert_eq!(index, found.len());
                found.push(value.to_string());
            });
            assert_eq!(count, found.len());
            (found.join(" "), end.is_continue())
        };
        let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let list = format!("items:\n- {}\n", numbers.join("\n- "));
        assert_eq!(read(&list), (numbers.join(" "), true));
        assert_eq!(read("items:\n- &a 1\n- 2\n- *a\n- 4\n"), ("1 2".to_owned(), false));
        assert_eq!(read("items:\n- 1\n- [\n- 3\n"), ("1".to_owned(), false));
    }
}
