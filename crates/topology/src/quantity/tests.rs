use super::*;

#[test]
fn canonical_text() {
    for (text, canonical) in
        [("0", "0"), ("1.5", "1500m"), ("1.5Gi", "1536Mi"), ("1024000", "1024k"), ("12000", "12k")]
    {
        assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}
