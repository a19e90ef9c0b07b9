//! Reads a JSON tree field by field, with the path of the field in every error.
//!
//! In: a parsed document. Out: texts, numbers, lists and fields of it, or a type mismatch. Unknown fields and `null`
//! are no errors: as in Go's decoder, they mean nothing.
//!
//! Names of fields match as in Go's `encoding/json`, regardless of case; of several spellings the last one in the order
//! of their bytes counts (the order in which Go writes maps).

use serde_json::Value;

/// A value of another type than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {expected}")]
pub(crate) struct Mismatch {
    /// The path of the field.
    pub(crate) field: String,
    /// The value, shortened.
    pub(crate) found: String,
    /// The expected type.
    pub(crate) expected: &'static str,
}

/// A value with its path.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Field<'a> {
    /// The whole document.
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    /// The path from the root: `reservedMemory[1].limits`.
    pub(crate) fn path(&self) -> &str {
        if self.path.is_empty() { "the document" } else { &self.path }
    }

    /// A field of an object; `None` when it is absent or null.
    pub(crate) fn field(&self, name: &str) -> Result<Option<Self>, Mismatch> {
        let Value::Object(fields) = self.value else { return Err(self.mismatch("an object")) };
        let spelled = |(key, value): &(&String, &Value)| key.eq_ignore_ascii_case(name) && !value.is_null();
        Ok(fields.iter().rfind(spelled).map(|(_, value)| self.child(value, name)))
    }

    /// A field of an object, or the default when it is absent.
    pub(crate) fn get<T: Default>(
        &self,
        name: &str,
        read: impl FnOnce(&Self) -> Result<T, Mismatch>,
    ) -> Result<T, Mismatch> {
        self.field(name)?.map_or_else(|| Ok(T::default()), |field| read(&field))
    }

    /// The fields of an object that are not null, with their names.
    pub(crate) fn fields(&self) -> Result<Vec<(&'a str, Self)>, Mismatch> {
        let Value::Object(fields) = self.value else { return Err(self.mismatch("an object")) };
        let there = fields.iter().filter(|(_, value)| !value.is_null());
        Ok(there.map(|(name, value)| (name.as_str(), self.child(value, name))).collect())
    }

    /// The items of a list, each read.
    pub(crate) fn list<T>(&self, read: impl Fn(&Self) -> Result<T, Mismatch>) -> Result<Vec<T>, Mismatch> {
        let Value::Array(items) = self.value else { return Err(self.mismatch("a list")) };
        let item = |(index, value)| read(&Self { value, path: format!("{}[{index}]", self.path) });
        items.iter().enumerate().map(item).collect()
    }

    /// A text.
    pub(crate) fn text(&self) -> Result<&'a str, Mismatch> {
        self.value.as_str().ok_or_else(|| self.mismatch("text"))
    }

    /// True or false.
    pub(crate) fn truth(&self) -> Result<bool, Mismatch> {
        self.value.as_bool().ok_or_else(|| self.mismatch("true or false"))
    }

    /// A whole number.
    pub(crate) fn signed(&self) -> Result<i64, Mismatch> {
        self.value.as_i64().ok_or_else(|| self.mismatch("a whole number"))
    }

    /// A whole number that is not negative.
    pub(crate) fn unsigned(&self) -> Result<u64, Mismatch> {
        self.value.as_u64().ok_or_else(|| self.mismatch("a whole number that is not negative"))
    }

    /// A text, or a number as it is written: the forms that Kubernetes reads as a quantity.
    pub(crate) fn text_or_number(&self) -> Result<String, Mismatch> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.mismatch("text or a number")),
        }
    }

    /// A text, a number, or true or false, as it is.
    pub(crate) fn plain(&self) -> Result<Value, Mismatch> {
        match self.value {
            Value::Null | Value::Array(_) | Value::Object(_) => {
                Err(self.mismatch("text, a number, true or false"))
            }
            plain => Ok(plain.clone()),
        }
    }

    fn child(&self, value: &'a Value, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { value, path }
    }

    fn mismatch(&self, expected: &'static str) -> Mismatch {
        let found = match self.value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            other => other.to_string().chars().take(60).collect(),
        };
        Mismatch { field: self.path().to_owned(), found, expected }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_match_as_in_go() {
        let doc = json!({"cpu_ids": 1, "CPU_IDS": 2, "Cpu_Ids": null, "other": 3});
        let at = Field::root(&doc);
        assert_eq!(
            at.get("cpu_ids", Field::signed),
            Ok(1),
            "the last spelling in byte order that says something"
        );
        assert_eq!(at.get("Other", Field::signed), Ok(3));
        assert_eq!(at.get("missing", Field::signed), Ok(0));
    }

    #[test]
    fn mismatches_say_where() {
        let doc = json!({"a": [{"b": {"c": "x"}}, 5]});
        let a = Field::root(&doc).field("a").unwrap().unwrap();
        let number = a.list(|item| item.get("b", |b| b.get("c", Field::unsigned)));
        let wanted = "a[0].b.c is \"x\", expected a whole number that is not negative";
        assert_eq!(number.unwrap_err().to_string(), wanted);
        let object = a.list(|item| item.get("c", Field::signed)).unwrap_err().to_string();
        assert_eq!(object, "a[1] is 5, expected an object");
        assert_eq!(
            Field::root(&doc).text().unwrap_err().to_string(),
            "the document is an object, expected text"
        );
        assert_eq!(a.text().unwrap_err().to_string(), "a is a list, expected text");
    }
}
