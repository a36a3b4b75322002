"""The training loop of ElasticDL's design for PyTorch, with its PSClient: the servers hold and update the parameters.

Start a server with `trek ps serve --port 7164`, then `python ps_cnn.py --ps_addrs 127.0.0.1:7164`.
"""

import argparse
import os

import torch
import torch.nn as nn
import torch.utils.data as Data

import trek.compat.torchvision as torchvision
from trek.compat.elasticdl.ps_client import PSClient, Tensor

parser = argparse.ArgumentParser()
parser.add_argument("--ps_addrs", required=True)
parser.add_argument("--data", default="./mnist/")
parser.add_argument("--steps", type=int, default=600)
args = parser.parse_args()

torch.manual_seed(1)    # reproducible
EPOCH = 1               # train the training data n times, to save time, we just train 1 epoch
BATCH_SIZE = 50
DOWNLOAD_MNIST = False


# Mnist digits dataset
if not(os.path.exists(args.data)) or not os.listdir(args.data):
    # not mnist dir or mnist is empyt dir
    DOWNLOAD_MNIST = True

train_data = torchvision.datasets.MNIST(
    root=args.data,
    train=True,                                     # this is training data
    transform=torchvision.transforms.ToTensor(),    # Converts a PIL.Image or numpy.ndarray to
                                                    # torch.FloatTensor of shape (C x H x W) and normalize in the range [0.0, 1.0]
    download=DOWNLOAD_MNIST,
)

print(train_data.train_data.size())                 # (60000, 28, 28)
print(train_data.train_labels.size())               # (60000)

# Data Loader for easy mini-batch return in training, the image batch shape will be (50, 1, 28, 28)
train_loader = Data.DataLoader(dataset=train_data, batch_size=BATCH_SIZE, shuffle=True)

# pick 2000 samples to speed up testing
test_data = torchvision.datasets.MNIST(root=args.data, train=False, download=DOWNLOAD_MNIST)
test_x = torch.unsqueeze(test_data.test_data, dim=1).type(torch.FloatTensor)[:2000]/255.   # shape from (2000, 28, 28) to (2000, 1, 28, 28), value in range(0,1)
test_y = test_data.test_labels[:2000]


class CNN(nn.Module):
    def __init__(self):
        super(CNN, self).__init__()
        self.conv1 = nn.Sequential(         # input shape (1, 28, 28)
            nn.Conv2d(
                in_channels=1,              # input height
                out_channels=16,            # n_filters
                kernel_size=5,              # filter size
                stride=1,                   # filter movement/step
                padding=2,                  # if want same width and length of this image after Conv2d, padding=(kernel_size-1)/2 if stride=1
            ),                              # output shape (16, 28, 28)
            nn.ReLU(),                      # activation
            nn.MaxPool2d(kernel_size=2),    # choose max value in 2x2 area, output shape (16, 14, 14)
        )
        self.conv2 = nn.Sequential(         # input shape (16, 14, 14)
            nn.Conv2d(16, 32, 5, 1, 2),     # output shape (32, 14, 14)
            nn.ReLU(),                      # activation
            nn.MaxPool2d(2),                # output shape (32, 7, 7)
        )
        self.out = nn.Linear(32 * 7 * 7, 10)   # fully connected layer, output 10 classes

    def forward(self, x):
        x = self.conv1(x)
        x = self.conv2(x)
        x = x.view(x.size(0), -1)           # flatten the output of conv2 to (batch_size, 32 * 7 * 7)
        output = self.out(x)
        return output, x    # return x for visualization


cnn = CNN()
print(cnn)  # net architecture

loss_func = nn.CrossEntropyLoss()                       # the target label is not one-hotted
learning_rate = 0.1

ps_client = PSClient(args.ps_addrs.split(","))
named = dict(cnn.named_parameters())
ps_client.partition_dense_parameters(named)
for ps_id, names in ps_client.ps_to_parameter.items():
    ps_client.push_dense_parameters([Tensor(name, named[name].detach()) for name in names], ps_id, 0)

# training and testing
for epoch in range(EPOCH):
    for step, (b_x, b_y) in enumerate(train_loader):   # gives batch data, normalize x when iterate train_loader
        if step == args.steps:
            break
        pulled, _ = ps_client.pull_dense_parameters()
        with torch.no_grad():
            for name, param in named.items():
                param.copy_(pulled[name])

        output = cnn(b_x)[0]               # cnn output
        loss = loss_func(output, b_y)   # cross entropy loss

        cnn.zero_grad()
        loss.backward()
        grads = [Tensor(name, param.grad) for name, param in named.items()]
        accepted, version = ps_client.push_gradients(grads, [], learning_rate, None)
        assert accepted

        if step % 50 == 0 or step == args.steps - 1:
            with torch.no_grad():
                test_output, last_layer = cnn(test_x)
            pred_y = torch.max(test_output, 1)[1].data.numpy()
            accuracy = float((pred_y == test_y.data.numpy()).astype(int).sum()) / float(test_y.size(0))
            print('Epoch: ', epoch, '| train loss: %.4f' % loss.data.numpy(), '| test accuracy: %.2f' % accuracy)

# print 10 predictions from test data
test_output, _ = cnn(test_x[:10])
pred_y = torch.max(test_output, 1)[1].data.numpy()
print(pred_y, 'prediction number')
print(test_y[:10].numpy(), 'real number')
ps_client.close()
