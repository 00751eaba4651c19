"""What is taken for a secret in free text, and what is left alone."""

from __future__ import annotations

import pytest

from cockpit.model.secret import HIDDEN, hide, hide_lines, is_secret_name


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnop train", "hf_abcdefghijklmnop"),
        ("password: hunter2", "hunter2"),
        ("password=123456", "123456"),
        ("python t.py --api-key s3cr3t --lr 0.1", "s3cr3t"),
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ("Cookie: a=1; session=zzz", "zzz"),
        ("pip: https://me:pa55@host/simple", "pa55"),
        ("git clone https://t0ken@github.com/x", "t0ken"),
        ("wandb: 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
        ("{'authToken': 'zzz9', 'x': 1}", "zzz9"),
        ("mysql -u me -ps3cret", "s3cret"),
        ("s3://b/x?X-Amz-Signature=abcdef&b=1", "abcdef"),
        ("curl -H 'X-Api-Key: k3y1' u", "k3y1"),
        ("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_a_secret_is_hidden_and_told(line: str, secret: str) -> None:
    found: list[str] = []
    hidden = hide(line, found.append)
    assert secret not in hidden
    assert HIDDEN in hidden
    assert any(secret in one for one in found)


@pytest.mark.parametrize(
    "line",
    [
        "step 100 tokens: 123456 tokens/s = 1200.5 loss 2.1",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOp",
        "KeyError: 'loss'",
        '  File "/x/y.py", line 12, in forward',
        "torch 2.7.0+cu126 TOKENIZERS_PARALLELISM=false",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    ],
)
def test_what_a_ticket_needs_stays(line: str) -> None:
    assert hide(line) == line


def test_a_private_key_goes_as_a_whole() -> None:
    lines = [
        "before",
        "-----BEGIN RSA PRIVATE KEY-----",
        "c2hvcnQ=",
        "-----END RSA PRIVATE KEY-----",
    ]
    assert list(hide_lines([*lines, "after"])) == ["before", HIDDEN, "after"]


def test_names_of_settings_are_told_apart_from_names_of_secrets() -> None:
    assert is_secret_name("authToken")
    assert not is_secret_name("TOKENIZERS_PARALLELISM")
