"""The PyTorch programs that bench/programs.py times and tests/torch/test_programs.py compares.

Each program is a model with random weights, its batches, and how a batch becomes a loss or an answer.  Seven models come from
the package `transformers`, in configurations small enough for steps of some 20 to 200 ms on two cores; the LSTM and the CNN are
written here and read their batches from a DataLoader with a worker process.  Nothing is downloaded, and nothing here knows Kiln.
"""
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
import torch  # noqa: E402
from torch import nn  # noqa: E402

CYCLE = 4  # different batches that in_cycles() makes; the fifth batch is the first one again
WORDS = 1000  # size of the vocabulary
CLASSES = 10


class Program(NamedTuple):
    model: Callable[[], nn.Module]
    batches: Callable[[], Iterator[dict]]  # endless
    loss: Callable[[nn.Module, dict], torch.Tensor]
    answer: Callable[[nn.Module, dict], torch.Tensor]


def install_command():
    """How to get the version of `transformers` that the tests use."""
    lines = (Path(__file__).resolve().parents[1] / "tools/requirements.txt").read_text().split()
    return "python -m pip install " + next(line for line in lines if line.startswith("transformers"))


def transformers():
    try:
        import transformers
    except ImportError as error:
        raise SystemExit(f"this program needs the package transformers: {install_command()}") from error
    return transformers


# -- batches -------------------------------------------------------------------------------------------------------

def in_cycles(make):
    """Batches 0 to CYCLE - 1, again and again."""
    def batches():
        generator = torch.Generator().manual_seed(1)
        return itertools.cycle([make(k, generator) for k in range(CYCLE)])
    return batches


def words(rows, longest, labels):
    """Sentences whose length differs from batch to batch.  labels: "words" to predict each word, "classes" for one class a sentence."""
    def make(k, generator):
        length = longest - k * longest // (2 * CYCLE)
        text = torch.randint(2, WORDS, (rows, length), generator=generator)
        target = text if labels == "words" else torch.randint(0, CLASSES, (rows,), generator=generator)
        return {"input_ids": text, "labels": target}
    return in_cycles(make)


def images(rows, side):
    def make(_, generator):
        return {"pixel_values": torch.randn(rows, 3, side, side, generator=generator),
                "labels": torch.randint(0, CLASSES, (rows,), generator=generator)}
    return in_cycles(make)


class Shapes(torch.utils.data.Dataset):
    """Images of noise with a bright square whose place tells the class, shifted and flipped at random as they are read."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, k):
        generator = torch.Generator().manual_seed(k)
        label = k % CLASSES
        image = torch.randn(3, 40, 40, generator=generator) * 0.3
        row, column = divmod(label, 4)
        image[:, 4 + 8 * row:12 + 8 * row, 4 + 8 * column:12 + 8 * column] += 1
        if torch.rand((), generator=generator) < 0.5:
            image = image.flip(2)
        top, left = torch.randint(0, 9, (2,), generator=generator).tolist()
        image = image[:, top:top + 32, left:left + 32]
        return {"pixel_values": (image - image.mean()) / image.std(), "labels": label}


class Waves(torch.utils.data.Dataset):
    """Series of numbers, each one the sum of two sine waves and noise; the class is the frequency of the first wave."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, k):
        generator = torch.Generator().manual_seed(k)
        label, other = k % CLASSES, torch.rand((), generator=generator)
        time = torch.arange(48.0) / 48
        series = torch.sin((label + 1) * 6.2832 * time) + torch.sin(20 * other * time) + 0.1 * torch.randn(48, generator=generator)
        return {"series": torch.stack([series, torch.gradient(series)[0]], 1), "labels": label}


def loaded(dataset, rows):
    """Batches from a worker process, in the order of the dataset."""
    def batches():
        loader = torch.utils.data.DataLoader(dataset(), batch_size=rows, num_workers=1)
        return iter(loader)
    return batches


# -- models --------------------------------------------------------------------------------------------------------

class Cnn(nn.Module):
    """Three blocks of convolution, batch norm, ReLU and pooling, then two linear layers."""

    def __init__(self):
        super().__init__()
        widths = (3, 24, 48, 64)
        blocks = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
                  for a, b in itertools.pairwise(widths)]
        self.body = nn.Sequential(*blocks, nn.Flatten())
        self.head = nn.Sequential(nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, CLASSES))

    def forward(self, pixel_values):
        return self.head(self.body(pixel_values))


class Lstm(nn.Module):
    """Two layers of LSTM over a projected series; the mean of the states is classified."""

    def __init__(self, width=128):
        super().__init__()
        self.into = nn.Sequential(nn.Linear(2, width), nn.Tanh())
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, series):
        states, _ = self.lstm(self.into(series))
        return self.head(self.norm(states.mean(1)))


def gpt2():
    t = transformers()
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=WORDS, n_positions=128, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=1))


def llama():
    t = transformers()
    return t.LlamaForCausalLM(t.LlamaConfig(
        vocab_size=WORDS, hidden_size=128, intermediate_size=344, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128))


def bert():
    t = transformers()
    return t.BertForSequenceClassification(t.BertConfig(
        vocab_size=WORDS, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=128, num_labels=CLASSES))


def t5():
    t = transformers()
    return t.T5ForConditionalGeneration(t.T5Config(
        vocab_size=WORDS, d_model=128, d_kv=32, d_ff=384, num_layers=3, num_heads=4, decoder_start_token_id=0, pad_token_id=0))


def mamba():
    t = transformers()
    return t.MambaForCausalLM(t.MambaConfig(vocab_size=WORDS, hidden_size=128, num_hidden_layers=4, state_size=16))


def vit():
    t = transformers()
    return t.ViTForImageClassification(t.ViTConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, image_size=64, patch_size=8, num_labels=CLASSES))


def resnet():
    t = transformers()
    return t.ResNetForImageClassification(t.ResNetConfig(
        embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 2, 2, 1], num_labels=CLASSES))


def without_labels(batch):
    return {name: value for name, value in batch.items() if name != "labels"}


def of_transformers(model, batches, answer=lambda model, batch: model(**without_labels(batch)).logits):
    """A model of the package takes a whole batch and computes its own loss."""
    return Program(model, batches, lambda model, batch: model(**batch).loss, answer)


def classifier(model, batches):
    return Program(model, batches, lambda model, batch: nn.functional.cross_entropy(model(**without_labels(batch)), batch["labels"]),
                   lambda model, batch: model(**without_labels(batch)))


PROGRAMS = {
    "GPT-2": of_transformers(gpt2, words(8, 64, "words")),
    "Llama": of_transformers(llama, words(8, 64, "words")),
    "BERT": of_transformers(bert, words(8, 64, "classes")),
    "T5": of_transformers(t5, words(8, 48, "words"), lambda model, batch: model(**batch).logits),  # the labels are the decoder's input
    "Mamba": of_transformers(mamba, words(4, 32, "words")),
    "ViT": of_transformers(vit, images(8, 64)),
    "ResNet": of_transformers(resnet, images(8, 96)),
    "LSTM": classifier(Lstm, loaded(Waves, 64)),
    "CNN": classifier(Cnn, loaded(Shapes, 64)),
}


# -- a program at work ---------------------------------------------------------------------------------------------

class Running:
    """A program with a model and batches of its own.  step() trains on one batch or answers one, and gives a number.

    A Running must not become part of a reference cycle.  When its owner frees a DataLoader's iterator, the iterator's
    worker process ends.  When the garbage collector frees the iterator, perhaps in another worker, the program waits
    for the worker.
    """

    def __init__(self, name, task):
        torch.manual_seed(0)
        self.program, self.training = PROGRAMS[name], task == "training"
        self.model = self.program.model().train(self.training)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3) if self.training else None
        self.batches = self.program.batches()

    def step(self):
        return self.train() if self.training else self.infer()

    def train(self):
        batch = next(self.batches)
        self.optimizer.zero_grad()
        loss = self.program.loss(self.model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def infer(self):
        with torch.inference_mode():
            return self.program.answer(self.model, next(self.batches)).argmax(-1).sum().item()
