//! The subject of a certificate.
//!
//! In: a certificate in DER. Out: its common name, organizations and user ID. Never: a read beyond the input.

use rustls::pki_types::CertificateDer;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// Kubernetes' own attribute for a user's UID, 1.3.6.1.4.1.57683.2.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;
/// `UTF8String`, `PrintableString`, `TeletexString` and `IA5String`.
const STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// Names of a certificate's subject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// The last common name, as Go takes it.
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) uids: Vec<String>,
}

impl Subject {
    /// Reads it; `None` if the certificate is malformed.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let mut outer: &[u8] = certificate;
        let mut certificate = tagged(&mut outer, SEQUENCE)?;
        let mut fields = tagged(&mut certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            element(&mut fields)?;
        }
        // Serial number, algorithm, issuer, validity.
        for _ in 0..4 {
            element(&mut fields)?;
        }
        let mut names = tagged(&mut fields, SEQUENCE)?;
        let mut subject = Self::default();
        while !names.is_empty() {
            let mut set = tagged(&mut names, SET)?;
            while !set.is_empty() {
                let mut attribute = tagged(&mut set, SEQUENCE)?;
                let kind = tagged(&mut attribute, OBJECT_IDENTIFIER)?;
                let (tag, value) = element(&mut attribute)?;
                let text = || std::str::from_utf8(value).ok().filter(|_| STRINGS.contains(&tag));
                subject.add(kind, text);
            }
        }
        Some(subject)
    }

    fn add<'a>(&mut self, kind: &[u8], text: impl Fn() -> Option<&'a str>) {
        match kind {
            COMMON_NAME => text().unwrap_or_default().clone_into(&mut self.common_name),
            ORGANIZATION => self.organizations.extend(text().map(str::to_owned)),
            // One that is no text counts as empty, which is refused.
            UID => self.uids.push(text().unwrap_or_default().to_owned()),
            _ => {}
        }
    }
}

/// The contents of the first element, which must have this tag.
fn tagged<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(input).filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
}

/// Takes the first element off the input: its tag and contents.
fn element<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, contents))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, DnValue)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        // Long enough that lengths take several bytes.
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 2, 3], [0x05, 0x00].repeat(300))];
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn subjects_are_read() {
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let bmp = || DnValue::BmpString(rcgen::string::BmpString::try_from("bmp").unwrap());
        for (names, common_name, organizations, uids) in [
            (vec![], "", vec![], vec![]),
            (vec![(DnType::CommonName, utf8("jané"))], "jané", vec![], vec![]),
            (
                vec![
                    (
                        DnType::OrganizationName,
                        DnValue::PrintableString("system:x".replace(':', "-").try_into().unwrap()),
                    ),
                    (DnType::CommonName, utf8("a")),
                    (uid(), utf8("u-1")),
                ],
                "a",
                vec!["system-x"],
                vec!["u-1"],
            ),
            (vec![(DnType::CommonName, bmp()), (uid(), bmp())], "", vec![], vec![""]),
        ] {
            let read = Subject::of(&certificate(&names)).unwrap();
            let organizations = organizations.iter().map(|name| (*name).to_owned()).collect();
            let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
            assert_eq!(
                read,
                Subject { common_name: common_name.to_owned(), organizations, uids },
                "{names:?}"
            );
        }
    }

    #[test]
    fn cut_certificates_are_malformed() {
        let whole = certificate(&[(DnType::CommonName, DnValue::Utf8String("a".to_owned()))]);
        for length in 0..whole.len() {
            assert_eq!(Subject::of(&CertificateDer::from(whole[..length].to_vec())), None, "{length}");
        }
    }
}
