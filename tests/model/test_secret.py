"""What is taken for a secret in free text, and what is left alone."""

from __future__ import annotations

import time

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
        ("postgres://u:p/w@db", "p/w"),
        ("postgres://u:p@w/x@db:5432/runs", "w/x"),
        ('token "abc def ghi"', "def ghi"),
        ("login with password 'my secret'", "my secret"),
        ("Password is hunter2", "hunter2"),
        ("the api_key was k3y9 before", "k3y9"),
        ("mysql -u me -p 'my secret pw'", "secret pw"),
        ("login --password 'my secret pw' --lr 1", "secret pw"),
        ("train --hf_token -value9 --lr 1", "value9"),
        ("train --amp --api-key -value9", "value9"),
        ("token=tok zz9", "zz9"),
        ("python t.py 'token=tok zz9' --lr 1", "zz9"),
        ("PASSWORD=a;bc;def", "bc;def"),
        ("PASSWORD=a)b,c&d}e", "b,c&d}e"),
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
        "tokenizer=gpt2",
        "train --max_tokens 4096 --lr 1",
        "max_tokens 4096",
        "password_file=/x",
        "token_path: ~/.cache/token",
        "num_tokens=12 loss=0.5",
        '{"max_tokens":5,"model":"llama"}',
        "num_tokens=12;loss=3",
        "secretary",
        "the token is expired",
        "password is required",
        "SyntaxError: Unexpected token '<'",
        'Missing key "layer.weight" in state_dict',
        "docker run -p 8080:80 -p 'x y' image",
        "train --use_token --lr 0.1",
        "train --use-auth-token -n 4",
        "see https://x.org/a/b and me@host",
        "http://h/p?x=a@b",
        "http://h:6006/#scalars",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    ],
)
def test_what_a_ticket_needs_stays(line: str) -> None:
    assert hide(line) == line


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("token=tok en --lr 0.1", "token=<hidden> --lr 0.1"),
        ("TOKEN=abc; python t.py", "TOKEN=<hidden>; python t.py"),
        ("TOKEN=abc python t.py --lr 1", "TOKEN=<hidden> python t.py --lr 1"),
        ("token=abc,lr=0.1", "token=<hidden>,lr=0.1"),
        ("{'token': 'a b', 'lr': 1}", "{'token': <hidden>, 'lr': 1}"),
        ("connect(token=abc) failed", "connect(token=<hidden>) failed"),
        ("postgres://u:p/w@db/runs", "postgres://<hidden>@db/runs"),
        ("train --hf_token -value9 --lr 1", "train --hf_token <hidden> --lr 1"),
    ],
)
def test_no_more_is_hidden_than_the_secret(line: str, hidden: str) -> None:
    assert hide(line) == hidden


@pytest.mark.parametrize(
    "piece",
    [
        *("://a:", "token ", "a=", "token=x ", "x;", "password is ", "--token-", "'token=", "api_"),
        *("a-", "token=a;", 'token "', "mysql ", "Aa1", "token=x y/"),
    ],
)
def test_a_hostile_line_takes_no_time(piece: str) -> None:
    began = time.monotonic()
    hide(piece * (60_000 // len(piece)))
    assert time.monotonic() - began < 3


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
